"""Operations: periodic jobs, and monitoring of queues, deadlines, runs and workers."""
