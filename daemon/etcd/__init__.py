"""A client of etcd over its JSON gateway, with a time limit on every call. It knows nothing of fleets."""
