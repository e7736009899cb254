"""The flow: config -> train -> run -> unlearn -> child run -> prune. Everything here writes run folders."""
