# The engine in a container: the build that this host made, on the libraries that it was linked against.
ARG BASE
FROM ${BASE}
COPY bin/llama-server /usr/local/bin/llama-server
ENTRYPOINT []
