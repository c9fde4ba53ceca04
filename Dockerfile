# The suite in a container, for a CPU:
#
#   docker build -t ptdp .
#   docker run --rm -v "$PWD:/work" ptdp fig_interleaved       results in ./ptdp-results
#   docker run --rm --privileged -v "$PWD:/work" ptdp fig_interleaved --fidelity emulated
#
# --build-arg BASE=python@sha256:... builds from a base image by its digest (docs/artifact-evaluation.md).
# For GPUs: --build-arg TORCH_INDEX= (torch as it comes, with CUDA), and `docker run --gpus all`.
ARG BASE=python:3.12-slim-bookworm
FROM ${BASE}

# ip and tc make the network of emulated nodes, gcc the compiled loops and on GPUs Triton's launchers; any version will do.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc iproute2 libc6-dev \
    && rm -rf /var/lib/apt/lists/*

ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
COPY . /src
RUN PIP_EXTRA_INDEX_URL="$TORCH_INDEX" pip install --no-cache-dir "/src[engine,fit]" && rm -rf /src

WORKDIR /work
ENTRYPOINT ["reproduce"]
