# Lookout, on the CPU or on an NVIDIA GPU:
#   docker build --target cpu -t lookout:cpu .
#   docker build --target rtx -t lookout:rtx .    # GeForce and RTX cards, A100, L4: all of it from PyPI
#   docker build --target gpu -t lookout:gpu .    # H100, H200 and the others: TensorRT from NVIDIA's index
#   docker run -d --restart unless-stopped --name lookout --network host --read-only --tmpfs /tmp \
#     -v ./config.yaml:/etc/lookout/config.yaml:ro lookout:cpu
# Bases are arguments: pin them by digest, or take your own copies.
ARG PYTHON_BASE=python:3.12-slim-bookworm
ARG CUDA_BASE=nvidia/cuda:12.9.1-base-ubuntu24.04

# --- what is built: not in what is run ---------------------------------------------------------------------------
FROM ${PYTHON_BASE} AS source
WORKDIR /src
COPY pyproject.toml README.md LICENSE THIRD_PARTY.md config.yaml ./
COPY daemon daemon
COPY detectors detectors
COPY calibration calibration
COPY client client
COPY lookout lookout
COPY lookoutd lookoutd
COPY models models
COPY deploy/backup.py deploy/backup.py

FROM source AS build-cpu
COPY requirements/cpu.lock /src/
RUN python -m venv /opt/lookout \
 && /opt/lookout/bin/pip install --no-cache-dir --no-compile --require-hashes -r cpu.lock \
 && /opt/lookout/bin/pip install --no-cache-dir --no-compile --no-deps ./client . \
 && python -m venv /tmp/sbom && /tmp/sbom/bin/pip install --no-cache-dir --no-compile cyclonedx-bom==7.5.0 \
 && /tmp/sbom/bin/cyclonedx-py environment --output-reproducible --of JSON --pyproject pyproject.toml \
    -o /opt/lookout/share/lookout/sbom.cdx.json /opt/lookout/bin/python \
 && cp deploy/backup.py /opt/lookout/share/lookout/ \
 && /opt/lookout/bin/pip uninstall --yes pip \
 && find /opt/lookout -type d -name tests -prune -exec rm -rf {} +

# TensorRT RTX is a source distribution that names wheels, so the lock file cannot have it: its version is pinned here. The
# driver comes from the host, and CUDA's libraries from PyPI, so no base of NVIDIA is needed. It has not run on a GPU.
FROM source AS build-rtx
COPY requirements/gpu.lock /src/
ARG TENSORRT_RTX=1.7.1.116
RUN python -m venv /opt/lookout \
 && /opt/lookout/bin/pip install --no-cache-dir --no-compile --require-hashes -r gpu.lock \
 && /opt/lookout/bin/pip install --no-cache-dir --no-compile tensorrt-rtx==${TENSORRT_RTX} \
 && /opt/lookout/bin/pip install --no-cache-dir --no-compile --no-deps ./client . \
 && python -m venv /tmp/sbom && /tmp/sbom/bin/pip install --no-cache-dir --no-compile cyclonedx-bom==7.5.0 \
 && /tmp/sbom/bin/cyclonedx-py environment --output-reproducible --of JSON --pyproject pyproject.toml \
    -o /opt/lookout/share/lookout/sbom.cdx.json /opt/lookout/bin/python \
 && cp deploy/backup.py /opt/lookout/share/lookout/ \
 && /opt/lookout/bin/pip uninstall --yes pip \
 && find /opt/lookout -type d -name tests -prune -exec rm -rf {} +

FROM ${CUDA_BASE} AS build-gpu
RUN apt-get update && apt-get install -y --no-install-recommends python3 python3-venv && apt-get clean && rm -rf /var/lib/apt/lists/*
COPY --from=source /src /src
COPY requirements/gpu.lock /src/
WORKDIR /src
# Which is used is for the card to say: TensorRT RTX for RTX cards, A100 and L4, TensorRT for H100 and H200 (docs/engines.md).
# TensorRT's wheels come from NVIDIA's index, and TensorRT RTX is a source distribution that names wheels: neither can be
# in the lock file, so the versions are pinned here. Neither has run on a GPU: TensorRT 8.6.0 alone has.
# --build-arg TENSORRT= leaves TensorRT out, and with it nearly all of the image.
ARG TENSORRT=10.16.1.11
ARG TENSORRT_RTX=1.7.1.116
RUN python3 -m venv /opt/lookout \
 && /opt/lookout/bin/pip install --no-cache-dir --no-compile --require-hashes -r gpu.lock \
 && /opt/lookout/bin/pip install --no-cache-dir --no-compile tensorrt-rtx==${TENSORRT_RTX} \
    ${TENSORRT:+tensorrt-cu12==${TENSORRT}} \
 && /opt/lookout/bin/pip install --no-cache-dir --no-compile --no-deps ./client . \
 && python3 -m venv /tmp/sbom && /tmp/sbom/bin/pip install --no-cache-dir --no-compile cyclonedx-bom==7.5.0 \
 && /tmp/sbom/bin/cyclonedx-py environment --output-reproducible --of JSON --pyproject pyproject.toml \
    -o /opt/lookout/share/lookout/sbom.cdx.json /opt/lookout/bin/python \
 && cp deploy/backup.py /opt/lookout/share/lookout/ \
 && /opt/lookout/bin/pip uninstall --yes pip \
 && find /opt/lookout -type d -name tests -prune -exec rm -rf {} +

# --- what is run ---------------------------------------------------------------------------------------------------
FROM ${PYTHON_BASE} AS run
LABEL org.opencontainers.image.title="Lookout" \
      org.opencontainers.image.licenses="Apache-2.0 AND GPL-3.0-or-later"
RUN apt-get update && apt-get install -y --no-install-recommends tini && apt-get clean && rm -rf /var/lib/apt/lists/* \
 && python3 -m pip uninstall --yes pip \
 && useradd --system --uid 10001 --user-group --groups video --no-create-home lookout \
 && install -d -o 10001 -g 10001 /var/cache/lookout /var/lib/lookout
COPY config.yaml /etc/lookout/config.yaml
COPY models /etc/lookout/models
ENV PATH=/opt/lookout/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 CACHE_DIRECTORY=/var/cache/lookout
USER 10001
WORKDIR /etc/lookout
VOLUME ["/var/cache/lookout", "/var/lib/lookout"]
STOPSIGNAL SIGTERM
# RTX cards build their engine at the first start, within seconds.
HEALTHCHECK --interval=30s --timeout=70s --start-period=60s CMD ["lookout", "health", "-c", "/etc/lookout/config.yaml"]
ENTRYPOINT ["tini", "--", "lookout"]
CMD ["run", "-c", "/etc/lookout/config.yaml"]

FROM run AS cpu
LABEL org.opencontainers.image.description="Video in, YOLO detections out over ZeroMQ; on the CPU"
COPY --from=build-cpu /opt/lookout /opt/lookout

FROM run AS rtx
LABEL org.opencontainers.image.description="Video in, YOLO detections out over ZeroMQ; on an RTX card of NVIDIA"
COPY --from=build-rtx /opt/lookout /opt/lookout
# compute: CUDA; video: the decoder; utility: NVML.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,video,utility

# TensorRT and its builder are 3 GB of libraries: its engines are built where they run, for the GPU that is there.
FROM ${CUDA_BASE} AS gpu
LABEL org.opencontainers.image.title="Lookout" \
      org.opencontainers.image.description="Video in, YOLO detections out over ZeroMQ; on an NVIDIA GPU" \
      org.opencontainers.image.licenses="Apache-2.0 AND GPL-3.0-or-later"
RUN apt-get update && apt-get install -y --no-install-recommends python3 tini && apt-get clean && rm -rf /var/lib/apt/lists/* \
 && useradd --system --uid 10001 --user-group --groups video --no-create-home lookout \
 && install -d -o 10001 -g 10001 /var/cache/lookout /var/lib/lookout
COPY --from=build-gpu /opt/lookout /opt/lookout
COPY config.yaml /etc/lookout/config.yaml
COPY models /etc/lookout/models
# compute: CUDA; video: the decoder; utility: NVML.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,video,utility \
    PATH=/opt/lookout/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 CACHE_DIRECTORY=/var/cache/lookout
USER 10001
WORKDIR /etc/lookout
VOLUME ["/var/cache/lookout", "/var/lib/lookout"]
STOPSIGNAL SIGTERM
# The first start builds an engine, which takes minutes with TensorRT.
HEALTHCHECK --interval=30s --timeout=70s --start-period=900s CMD ["lookout", "health", "-c", "/etc/lookout/config.yaml"]
ENTRYPOINT ["tini", "--", "lookout"]
CMD ["run", "-c", "/etc/lookout/config.yaml"]
