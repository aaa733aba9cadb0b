# The image holds what `make build` has made: the server, and the agents that it brings to nodes. Nothing else is needed.
FROM scratch
COPY bin/refit /refit
COPY bin/agents/refit-node-linux-amd64 bin/agents/refit-node-linux-arm64 /agents/
USER 65532:65532
ENTRYPOINT ["/refit"]
