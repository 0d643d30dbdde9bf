"""Operations: periodic jobs, and the monitoring of queues, deadlines, runs and workers."""
