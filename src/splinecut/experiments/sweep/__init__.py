"""Many runs of one recipe: which runs, their schedule, worker processes or Ray, and what was charged and executed."""
