# Whether the program, a manifest, the package and the library's name say one version: version.sh PREFIX CHECKPOINT.
set -eu
version=$("$1/bin/megalith" --version)
version=${version#megalith }
"$1/bin/megalith" compile "$1/share/megalith/pipelines/autoregressive.yaml" --model "$2" --emit=manifest |
  grep -F "\"megalith\": \"$version\""
PKG_CONFIG_PATH=$(dirname "$(find "$1" -name megalith.pc)")
export PKG_CONFIG_PATH
pkg-config --exact-version="$version" megalith
test -f "$(pkg-config --variable=libdir megalith)/libmegalith.so.$version"
test -f "$(pkg-config --variable=pipelinesdir megalith)/autoregressive.yaml"
grep -rqF "PACKAGE_VERSION \"$version\"" "$1"
