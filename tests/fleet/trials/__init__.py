"""Daemons in processes of their own over real etcd servers, through every trouble that their promises are about."""
