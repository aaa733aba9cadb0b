#!/bin/sh
# A FAKE sshd for stand-in nodes. It takes every configuration for valid when it is asked to test it, and does nothing else.
[ "$*" = -t ] || { echo "the fake sshd tests configurations only" >&2; exit 1; }
