# Lookout on the CPU:
#   docker build --target cpu -t lookout .
#   docker run --rm --network host -v ./config.yaml:/etc/lookout/config.yaml:ro lookout

FROM python:3.12-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE config.yaml ./
COPY daemon daemon
COPY detectors detectors
COPY calibration calibration
COPY models models
RUN python -m venv /opt/lookout && /opt/lookout/bin/pip install --no-cache-dir .

FROM python:3.12-slim-bookworm AS cpu
LABEL org.opencontainers.image.title="Lookout" \
      org.opencontainers.image.description="Video in, YOLO detections out over ZeroMQ" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/lookout /opt/lookout
COPY config.yaml /etc/lookout/config.yaml
COPY models /etc/lookout/models
ENV PATH=/opt/lookout/bin:$PATH PYTHONUNBUFFERED=1
RUN useradd --system --uid 10001 --user-group --groups video --no-create-home lookout
USER 10001
WORKDIR /etc/lookout
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s CMD ["lookout", "watch", "--once"]
ENTRYPOINT ["lookout"]
CMD ["run", "-c", "/etc/lookout/config.yaml"]
