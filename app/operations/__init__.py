"""Operations: waiting work, late work, the outcome of runs, and the life of workers."""
