# compile.sh PIPELINE "ARCH..." OPTION...: compiles the pipeline with these models for every architecture, with the plan of a
# GPU that has it. For those that are named it is the kernel, without spills but for some words on sm_80; for the others the
# control unit alone: pipelines share the text of the tensor unit, which takes most of the time.
# With an empty `spills` in the environment there may be some.
set -eu
pipeline=$1 whole=$2
shift 2
for arch in sm_80 sm_90a sm_100a; do
  case " $whole " in
  *" $arch "*)
    case $arch in
    sm_80) plan= ;; # up to 150 bytes of stores: there the kernel is one unit, and control has its registers
    *) plan=${spills---no-spills} ;;
    esac
    megalith compile $pipeline "$@" --arch=$arch --emit=cubin $plan -o $arch.cubin
    test -s $arch.cubin
    ;;
  *)
    echo '//===- tensor unit --------------------------------------------------------===//' >stub.cu
    case $arch in
    sm_80) # one unit, in which something must call the other's functions
      echo '#include "megalith/TensorUnit.cuh"' >>stub.cu
      echo 'extern "C" __global__ void megalith_run(megalith::device::PassShared *pass) { controlStart(*pass); controlTicks(false); controlKeep(); }' >>stub.cu
      ;;
    esac
    megalith compile $pipeline "$@" --arch=$arch --emit=ptx --cu stub.cu -o $arch.ptx
    grep -q controlTicks $arch.ptx || grep -q megalith_run $arch.ptx
    ;;
  esac
done
