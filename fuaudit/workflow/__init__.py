"""The flow: data of one's own -> config -> train -> run -> unlearn -> child run. What is done here judges no run."""
