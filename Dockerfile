# Two images from one file, for amd64 and arm64: `operator` (small) and `trainer` (PyTorch, Ray, Gymnasium).
#
#   docker build --target operator -t reef-operator .
#   docker build --target trainer -t reef-trainer .
#
# The trainer takes PyTorch from PyPI, on amd64 the build for CUDA with its libraries: several GB. For CPUs alone:
#   docker build --target trainer --build-arg PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu -t reef-trainer .
# podman build and buildah bud take the same arguments.

# Any Debian with Python >= 3.11; what is there already is not installed again.
# BASE DIGEST: `docker buildx imagetools inspect debian:bookworm-slim` prints it, one for all processors.
ARG BASE_IMAGE=debian:bookworm-20260824-slim@sha256:88200866dfff7ea7f5cbcb6ec7c8a701889efe6fe859fe64d6990e4b07ea4171

FROM ${BASE_IMAGE} AS runtime
RUN python3 -c 'import ssl, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
      && test -e /etc/ssl/certs/ca-certificates.crt || { \
      apt-get update && apt-get install --yes --no-install-recommends ca-certificates python3 \
      && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/log/*.log /var/log/apt; }
# Some libraries ask for the name of the user that they run as.
RUN getent passwd 1000 >/dev/null || { \
      echo 'reef:x:1000:' >> /etc/group && echo 'reef:x:1000:1000:Reef:/tmp:/usr/sbin/nologin' >> /etc/passwd; }
# The root file system is read-only in a pod: everything is compiled here, and what is written goes to /tmp.
ENV PATH=/opt/reef/bin:${PATH} \
    VIRTUAL_ENV=/opt/reef \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1

FROM runtime AS build
RUN python3 -c 'import ensurepip' 2>/dev/null || { \
      apt-get update && apt-get install --yes --no-install-recommends python3-venv && rm -rf /var/lib/apt/lists/*; }
# Pip's own variables: other indexes, or a folder of wheels.
ARG PIP_INDEX_URL=
ARG PIP_EXTRA_INDEX_URL=
ARG PIP_FIND_LINKS=
ENV PIP_NO_CACHE_DIR=1 \
    PIP_NO_INPUT=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
# What builds Reef's wheel is kept apart from what goes into the images. All files below locks/ are checked by their hashes.
COPY locks locks
RUN python3 -m venv /opt/reef && python3 -m venv /opt/tools \
      && /opt/tools/bin/pip install --quiet --require-hashes --requirement locks/build.txt

# The client for Kubernetes, half of the image, reads kubeconfigs for developers; a pod has a service account.
FROM build AS operator-packages
RUN pip install --quiet --require-hashes --requirement locks/operator.txt \
      && pip uninstall --quiet --yes kubernetes setuptools pip

# PyTorch's build, CUDA or CPU, is the index's choice, so no hash can be given for it and its CUDA libraries. The wheel
# is built before the sources are there, for the extras alone: a change of the sources leaves this layer alone.
FROM build AS trainer-packages
RUN pip install --quiet --require-hashes --requirement locks/trainer.txt
COPY pyproject.toml constraints.txt ./
RUN touch README.md LICENSE && mkdir -p examples/tuned && /opt/tools/bin/hatchling build --target wheel --directory extras
# More extras for own environments, for example trainer,box2d.
ARG TRAINER_EXTRAS=trainer
RUN pip install --quiet --constraint constraints.txt "$(ls extras/*.whl)[${TRAINER_EXTRAS}]" \
      && pip uninstall --quiet --yes reef \
      && cd /opt/reef/lib/python3*/site-packages && rm -rf torch/test torch/bin/*test* torch/bin/*Test ray/jars

FROM build AS reef
COPY pyproject.toml README.md LICENSE ./
COPY operator operator
COPY trainer trainer
COPY examples/tuned examples/tuned
RUN /opt/tools/bin/hatchling build --target wheel --directory dist \
      && pip install --quiet --no-deps --no-index --prefix=/installed dist/*.whl

# No init process in front: both are Python programs that handle SIGTERM and wait for their children themselves.
FROM runtime AS operator
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="reef-operator" \
      org.opencontainers.image.description="Runs RLTrainingJobs on Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=operator-packages /opt/reef /opt/reef
COPY --from=reef /installed /opt/reef
WORKDIR /tmp
USER 1000:1000
EXPOSE 8081 8082
ENTRYPOINT ["reef-operator"]

FROM runtime AS trainer
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="reef-trainer" \
      org.opencontainers.image.description="Trains reinforcement-learning policies: Reef with PyTorch, Ray and Gymnasium" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
ENV RAY_USAGE_STATS_ENABLED=0
COPY --from=trainer-packages /opt/reef /opt/reef
COPY --from=reef /installed /opt/reef
WORKDIR /tmp
USER 1000:1000
EXPOSE 6379 8080
CMD ["reef", "--help"]
