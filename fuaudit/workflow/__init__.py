"""The flow: config -> train -> run -> unlearn -> child run. It writes runs, or proves a method; it judges no run."""
