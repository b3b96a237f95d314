"""Evidence: a time of a source as it lies in a store, with all that is needed to check it elsewhere and later."""
