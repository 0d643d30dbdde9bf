# Two images of one code base. `gateway` serves, accounts and migrates, and has no torch; `worker` has.
#   docker build --target gateway .
#   docker build --target worker --build-arg TORCH_INDEX=... .    # the index of the build of torch that is wanted
# deploy/pin-images says what the base image is by its digest, which is then given as PYTHON_IMAGE.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm
FROM ${PYTHON_IMAGE} AS python
ENV PATH=/opt/lethe/bin:$PATH \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PYTHONUNBUFFERED=1

FROM python AS packages
WORKDIR /src
COPY deploy/gateway.lock ./
RUN --mount=type=cache,target=/root/.cache/pip \
    python -m venv /opt/lethe \
    && pip install --require-hashes --no-deps --requirement gateway.lock

# The index says which build of torch it is: that of PyPI, which has CUDA, unless TORCH_INDEX is another, such as that of
# PyTorch for CPUs, without its gigabytes. It comes without a hash, and brings what only it needs.
FROM packages AS worker-packages
ARG TORCH_INDEX=
COPY constraints.txt deploy/worker.lock ./
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install --require-hashes --no-deps --requirement worker.lock \
    && pip install --constraint constraints.txt ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch

FROM python AS wheel
WORKDIR /src
COPY pyproject.toml README.md ./
COPY app app
COPY lethe lethe
COPY lethe_server lethe_server
COPY migrations migrations
COPY worker worker
RUN --mount=type=cache,target=/root/.cache/pip pip wheel --no-deps --wheel-dir /wheel ./lethe .

FROM python AS runtime
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /var/lib/lethe lethe \
    && install --directory --owner lethe --group lethe --mode 0700 \
        /var/lib/lethe /var/lib/lethe/keys /var/lib/lethe/public /var/lib/lethe/sealing \
    && install --directory --owner lethe --group lethe --mode 0755 /secrets/database /secrets/redis \
    && install --directory --owner lethe --group lethe --mode 0700 /secrets/lethe /secrets/admin /secrets/accounting /secrets/sweeper /secrets/edge
COPY --chmod=0755 deploy/make-secrets /usr/local/bin/make-secrets
ENV LETHE_DATA_DIR=/var/lib/lethe \
    LETHE_HOST=0.0.0.0 \
    NUMBA_CACHE_DIR=/tmp/numba \
    PYTHONPATH=/opt/lethe/lib/python3.11/site-packages/lethe_server \
    PYTHONMALLOC=malloc_debug \
    GLIBC_TUNABLES=glibc.malloc.perturb=165:glibc.malloc.tcache_count=0 \
    ARROW_DEFAULT_MEMORY_POOL=system
WORKDIR /var/lib/lethe

FROM runtime AS worker
# The sandbox of trainers.
RUN apt-get update && apt-get install --yes --no-install-recommends bubblewrap && rm -rf /var/lib/apt/lists/*
COPY --from=worker-packages /opt/lethe /opt/lethe
RUN --mount=type=bind,from=wheel,source=/wheel,target=/wheel pip install --no-cache-dir --no-deps --no-index /wheel/*.whl
# Compiled for this CPU; a worker on another compiles again. Numba loads it only from a folder that it may write to.
RUN NUMBA_CACHE_DIR=/opt/lethe/numba python -c "import worker.langevin.kernels"
USER 10001:10001
CMD ["sh", "-c", "cp -r /opt/lethe/numba /tmp && exec celery -A worker.celery_app worker --pool threads \
     --concurrency 1 --without-gossip --without-mingle"]

FROM runtime AS gateway
COPY --from=packages /opt/lethe /opt/lethe
RUN --mount=type=bind,from=wheel,source=/wheel,target=/wheel pip install --no-cache-dir --no-deps --no-index /wheel/*.whl
USER 10001:10001
EXPOSE 8000
CMD ["lethe", "serve"]
