# Compiles a program with what pkg-config says: pkg_config.sh PREFIX SOURCE PROGRAM. As C99 it has
# no warnings.
set -eu
PKG_CONFIG_PATH=$(dirname "$(find "$1" -name megalith.pc)")
export PKG_CONFIG_PATH
flags=$(pkg-config --cflags --libs megalith)
# shellcheck disable=SC2086 # a list of words
cc -std=c99 -Wall -Wextra -Wpedantic -Werror "$2" -o "$3" $flags -Wl,-rpath,"$(pkg-config --variable=libdir megalith)"
