# kind's image of a machine, with what it lacks: an SSH server, and a network for pods that nothing has to be deployed for.
ARG BASE
FROM ${BASE}
COPY . /recipe
RUN sh /recipe/derive.sh && rm -rf /recipe
