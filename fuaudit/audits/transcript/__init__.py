"""Whether the messages of secure sums are those of the protocol, and the model was made of what they opened."""
