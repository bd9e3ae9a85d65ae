#!/usr/bin/env python3
"""Asks a gateway how to start connections that carry so many bytes: query.py GATEWAY:PORT BYTES ADDRESS... [--tls FOLDER]"""
# Needs python3-grpcio, and what `protoc -I proto --python_out FOLDER proto/spand/v1/*.proto` writes, FOLDER in PYTHONPATH.
import argparse, pathlib
import grpc
from spand.v1 import query_pb2

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("gateway"), parser.add_argument("bytes", type=int), parser.add_argument("address", nargs="+")
parser.add_argument("--tls", type=pathlib.Path, help="folder of ca.pem, agent.pem and agent.key")
ask = parser.parse_args()
files = [(ask.tls / name).read_bytes() for name in ("ca.pem", "agent.key", "agent.pem")] if ask.tls else None
channel = grpc.secure_channel(ask.gateway, grpc.ssl_channel_credentials(*files)) if files else grpc.insecure_channel(ask.gateway)
query = channel.unary_unary("/spand.v1.Spand/Query", query_pb2.QueryRequest.SerializeToString, query_pb2.QueryResponse.FromString)
questions = [query_pb2.Question(address=address, transfer_bytes=ask.bytes) for address in ask.address]
for answer in query(query_pb2.QueryRequest(contract_version=1, questions=questions), timeout=5).answers:
    if answer.HasField("start"):
        print(f"{answer.address}: start with {answer.start.cwnd_segments} segments of {answer.start.mss_bytes} bytes")
    else:
        print(f"{answer.address}: start as ever: {answer.refusal.message}")
