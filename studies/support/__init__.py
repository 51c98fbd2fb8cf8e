"""What studies share: result files, intervals, panels, tasks."""
