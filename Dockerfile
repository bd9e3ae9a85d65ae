# Both programs as images of their own:
#
#   docker build --target gateway --tag spand-gateway .
#   docker run --network host --cap-add NET_RAW -v /etc/spand:/etc/spand:ro -v spand:/var/lib/spand \
#       -v spand-run:/run/spand spand-gateway
#
#   docker build --target agent --tag spand-agent .
#   docker run --network host --pid host --cap-add NET_ADMIN --cap-add BPF --cap-add PERFMON \
#       -v /sys/fs/cgroup:/sys/fs/cgroup:ro -v /etc/spand:/etc/spand:ro -v spand:/var/lib/spand \
#       -v spand-run:/run/spand spand-agent
#
# The agent's way bpf needs an engine that knows CAP_BPF (Docker 20.10 of Debian 12 does not; its podman does). Without those two
# capabilities it runs with apply = "route". `make release-test WHAT=images` tries both.
#
# Each needs its host's network: the one to see the mirror port, the other to start the host's own connections.

FROM rust:1-bookworm AS build
RUN apt-get update \
 && apt-get install --yes --no-install-recommends \
        clang gcc libc6-dev libelf-dev libpcap-dev linux-libc-dev make pkg-config zlib1g-dev \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
WORKDIR /src
COPY . .
# What a debugger reads is half of a program.
ENV CARGO_PROFILE_RELEASE_STRIP=symbols
RUN cargo build --release --locked --bin spand-gateway --bin spand-agent

FROM debian:bookworm-slim AS base
# Numbers of user and group that volumes and manifests can name.
RUN groupadd --gid 7480 spand \
 && useradd --system --uid 7480 --gid spand --no-create-home spand \
 && install --directory --owner spand --group spand /etc/spand /run/spand /var/lib/spand
VOLUME /run/spand /var/lib/spand

FROM base AS gateway
COPY --from=build /src/target/release/spand-gateway /usr/bin/
# What a program that does not run as root may do, it is given here; the container must be allowed it too. Not where it is
# built: docker's builder before BuildKit loses it on the way. Permitted and not in force: the program puts it in force itself,
# and starts with less where the container is allowed less.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends libcap2-bin libpcap0.8 \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* \
 && setcap cap_net_raw=p /usr/bin/spand-gateway
USER spand
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s CMD ["bash", "-c", \
    "exec 3<>/dev/tcp/127.0.0.1/7480 && printf 'GET /readyz HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n' >&3 && head -n 1 <&3 | grep -q ' 200 '"]
ENTRYPOINT ["/usr/bin/spand-gateway"]
CMD ["run", "--config", "/etc/spand/gateway.toml"]

FROM base AS agent
COPY --from=build /src/target/release/spand-agent /usr/bin/
RUN apt-get update \
 && apt-get install --yes --no-install-recommends libcap2-bin libelf1 zlib1g \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* \
 && setcap cap_net_admin,cap_bpf,cap_perfmon=p /usr/bin/spand-agent
USER spand
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s CMD ["/usr/bin/spand-agent", "status"]
ENTRYPOINT ["/usr/bin/spand-agent"]
CMD ["run", "--config", "/etc/spand/agent.toml"]
