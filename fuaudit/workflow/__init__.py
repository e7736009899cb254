"""The flow: config -> train -> run -> unlearn -> child run. It writes runs, and judges none."""
