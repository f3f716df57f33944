"""Running a stream: a method with its state, encoding in batches, rows out, saving and resuming."""
