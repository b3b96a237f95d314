"""The second stage: classifiers that look at the boxes of tracked objects."""
