# The image holds what `make build` has made: the server, and the agents that it brings to nodes, with their signatures if they were signed. Nothing else is needed.
FROM scratch
COPY bin/refit /refit
COPY bin/agents/ /agents/
USER 65532:65532
ENTRYPOINT ["/refit"]
