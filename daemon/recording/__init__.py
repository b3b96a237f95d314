"""Video of cameras on disk, as they sent it; a second that is not there has a cause."""
