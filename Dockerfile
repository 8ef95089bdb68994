# docker build -t tessera .                            the program on a slim Debian
# docker build --target develop -t tessera-develop .   what builds, tests and debugs it: .devcontainer/

FROM debian:bookworm-slim AS develop
COPY tools/packages tools/apt_packages.txt /opt/tessera/
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates dpkg-dev file git \
 && /opt/tessera/packages install build test ci speed debug && rm -rf /var/lib/apt/lists/*

FROM develop AS build
COPY . /src
WORKDIR /src
RUN cmake --preset release && cmake --build --preset release && cd build/release && cpack -G DEB

FROM debian:bookworm-slim
COPY --from=build /src/build/release/tessera_*.deb /tmp/
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates libcurl4 libmicrohttpd12 /tmp/tessera_*.deb \
 && rm -rf /tmp/tessera_*.deb /var/lib/apt/lists/* /var/cache/debconf/*-old /var/lib/dpkg/*-old
