"""Sends back the bytes of one connection, at ADDRESS; prints the port."""

import socket
import sys

with socket.create_server((sys.argv[1], 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    connection = listener.accept()[0]
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
while data := connection.recv(64):
    connection.sendall(data)
