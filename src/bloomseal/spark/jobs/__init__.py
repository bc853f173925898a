"""Jobs over tables too big for one machine: the same code as on one, a pack of files to a task.

Nothing is imported here: each Python worker of Spark imports its task's module, and should not pay for the other jobs.
"""
