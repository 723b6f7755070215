"""Files for this host: receiving them, the tree they make up, and a cache of their contents."""
