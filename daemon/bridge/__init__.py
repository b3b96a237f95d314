"""`lookout bridge`: a subscriber of the public wire that passes events, states and figures on to brokers and people."""
