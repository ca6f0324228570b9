# TileLang Labs in a container. Two images come from this file:
#   docker build --target student    .   what students open: labs and grader, no solutions, no private checks
#   docker build --target instructor .   all of the course
#
#   BASE_IMAGE    any Debian or Ubuntu with Python 3.11 to 3.13
#   TORCH_INDEX   a further wheel index to look for torch in, e.g. the one of its CPU builds: a smaller image
#                 for hosts without a GPU
#
# Layers go from what changes rarely to what changes often: a changed notebook builds one COPY anew.

ARG BASE_IMAGE=debian:bookworm-slim

# ---- base: Python, every package of the lock file, CUDA's compiler ---------------------------------------
FROM ${BASE_IMAGE} AS base
SHELL ["/bin/sh", "-eu", "-c"]

# g++ and Python's headers: nvcc needs a host compiler, and so does torch.compile, a peer of some labs.
# No versions: Debian stable changes them for security fixes only, and then the old ones are gone.
# hadolint ignore=DL3008
RUN --mount=type=cache,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,target=/var/lib/apt,sharing=locked \
    rm -f /etc/apt/apt.conf.d/docker-clean; \
    apt-get update; \
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        ca-certificates g++ python3 python3-dev python3-venv tini

ENV PATH=/opt/venv/bin:$PATH \
    LANG=C.UTF-8 \
    PYTHONUNBUFFERED=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1

# A second index is asked beside PyPI, and its "2.13.0+cpu" counts as newer than PyPI's "2.13.0".
ARG TORCH_INDEX=
COPY requirements.lock /tmp/requirements.lock
RUN --mount=type=cache,target=/root/.cache/pip \
    python3 -m venv /opt/venv; \
    pip install ${TORCH_INDEX:+--extra-index-url "${TORCH_INDEX}"} -r /tmp/requirements.lock

# nvcc as wheels, all parts of one release: the one that torch's CUDA build asks for, which 'pip check' proves
# (grader/doctor/gpu.py names the same). Linked to a fixed place, since the folder of the wheels has Python's and
# CUDA's versions in its name.
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install "cuda-toolkit[nvcc,nvvm,crt,cudart,cccl,nvrtc]==13.0.3.0"; \
    pip check; \
    nvcc=$(find /opt/venv/lib -path '*/nvidia/*/bin/nvcc'); \
    ln -s "${nvcc%/bin/nvcc}" /opt/cuda; \
    /opt/cuda/bin/nvcc --version
ENV CUDA_HOME=/opt/cuda \
    PATH=/opt/cuda/bin:$PATH

# What is compiled goes to one folder, so that a read-only container needs one writable place for it.
RUN useradd --uid 1000 --create-home --shell /bin/bash student; \
    install -d -o student -g student /home/student/work
ENV TILELANG_CACHE_DIR=/home/student/.cache/tilelang \
    TRITON_CACHE_DIR=/home/student/.cache/triton \
    TORCHINDUCTOR_CACHE_DIR=/home/student/.cache/inductor \
    CUDA_CACHE_PATH=/home/student/.cache/nv \
    MPLCONFIGDIR=/home/student/.cache/matplotlib

# Asked for by NVIDIA's container toolkit, which brings the driver.
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility

WORKDIR /opt/tilelang-labs
EXPOSE 8888
ENTRYPOINT ["tini", "--", "/opt/tilelang-labs/docker/entrypoint.sh"]
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "/opt/tilelang-labs/docker/healthcheck.py"]

LABEL org.opencontainers.image.title="TileLang Labs" \
      org.opencontainers.image.description="A course that teaches people to write fast GPU kernels in TileLang." \
      org.opencontainers.image.licenses="Apache-2.0"

# ---- public: the grader without what only the official run may know --------------------------------------
# A stage of its own: what is deleted here is in no layer of the student image.
FROM base AS public
COPY grader/ grader/
RUN rm -rf grader/autograders/private; \
    test -z "$(find . -name private)"

# ---- student ----------------------------------------------------------------------------------------------
FROM base AS student
COPY pyproject.toml requirements.lock README.md LICENSE ./
COPY docker/entrypoint.sh docker/healthcheck.py docker/
COPY --from=public /opt/tilelang-labs/grader/ grader/
RUN pip install --no-cache-dir --no-deps --no-build-isolation -e .; \
    python -m compileall -q grader
COPY labs/ labs/
USER 1000
WORKDIR /home/student/work

# ---- instructor -------------------------------------------------------------------------------------------
FROM base AS instructor
COPY pyproject.toml requirements.lock README.md LICENSE ./
COPY docker/ docker/
COPY docker/nbgrader_config.py /etc/jupyter/nbgrader_config.py
ENV TILELAB_COURSE=/home/student/work/course
COPY grader/ grader/
RUN pip install --no-cache-dir --no-deps --no-build-isolation -e .; \
    python -m compileall -q grader
COPY tests/ tests/
COPY solutions/ solutions/
COPY labs/ labs/
USER 1000
WORKDIR /home/student/work
