#!/bin/bash
#SBATCH --nodes=8             # number of nodes to use
#SBATCH --ntasks-per-node=1   # an agent a node, which starts its ranks
#SBATCH --job-name=smpv2_llama
#SBATCH --exclusive           # job has exclusive use of the nodes
#SBATCH --wait-all-nodes=1

# Llama-2 of 7b, 13b or 70b, or GPT-NeoX of 20b or 65b (whose shards of 128 ranks need 16 nodes), on synthetic data or a
# saved Arrow data set, hybrid sharding, in a container of enroot:
#   sbatch launch_training_enroot.sh [options of tessera train, which win]
# Variables: model_size, shard_degree, use_synthetic_data, TRAINING_DIR and TEST_DIR (with data of one's own), IMAGE (empty:
# without a container), GPUS_PER_NODE.
set -e

model_type=llama_v2
model_size=${model_size:-70b}
use_synthetic_data=${use_synthetic_data:-1}
GPUS_PER_NODE=${GPUS_PER_NODE:-8}  # ranks a node
: "${IMAGE=$PWD/smpv2.sqsh}"

case $model_size in
  7b) shape=(--hidden_width 4096 --num_layers 32 --num_heads 32 --llama_intermediate_size 11008) default_degree=8 ;;
  13b) shape=(--hidden_width 5120 --num_layers 40 --num_heads 40 --llama_intermediate_size 13824) default_degree=64 ;;
  20b)
    model_type=gpt_neox
    shape=(--hidden_width 6144 --num_layers 44 --num_heads 64)
    default_degree=64
    ;;
  65b)
    model_type=gpt_neox
    shape=(--hidden_width 8192 --num_layers 80 --num_heads 64)
    default_degree=128
    ;;
  70b)
    shape=(--hidden_width 8192 --num_layers 80 --num_heads 64 --num_key_value_heads 8 --llama_intermediate_size 28672)
    default_degree=64
    ;;
  *)
    echo "model_size=$model_size: one of 7b, 13b, 20b, 65b, 70b" >&2
    exit 2
    ;;
esac

# The processes of the job recognise each other by this secret.
TESSERA_JOB_TOKEN=${TESSERA_JOB_TOKEN:-$(od -An -v -N32 -tx1 /dev/urandom | tr -d ' \n')}
export TESSERA_JOB_TOKEN
# At scancel Slurm asks the ranks to save; this script waits until they have.
trap : TERM

mkdir -p checkpoints
mounts=$PWD:$PWD
[ ! -d /opt/ml/config ] || mounts=$mounts,/opt/ml/config:/opt/ml/config
data=(--use_synthetic_data "$use_synthetic_data")
if [ "$use_synthetic_data" = 0 ]; then
  : "${TRAINING_DIR:?names the directory of the training data}" "${TEST_DIR:?names the directory of the validation data}"
  mounts=$mounts,$TRAINING_DIR:$TRAINING_DIR,$TEST_DIR:$TEST_DIR
  data+=(--training_dir "$TRAINING_DIR" --test_dir "$TEST_DIR")
fi
enroot=()
if [ -n "$IMAGE" ]; then
  enroot=(--container-image "$IMAGE" --container-workdir "$PWD" --container-mounts "$mounts")
fi

RUN_ARGS=(
  --nproc_per_node="$GPUS_PER_NODE"
  --nnodes="$SLURM_JOB_NUM_NODES"
  --rdzv_id="$SLURM_JOB_ID"
  --rdzv_backend=c10d
  --rdzv_endpoint="$(hostname)"
)

srun -l --kill-on-bad-exit=1 --cpu-bind=none "${enroot[@]}" \
  tessera run "${RUN_ARGS[@]}" train \
  --train_batch_size 4 \
  --val_batch_size 4 \
  --max_steps 100 \
  --model_type "$model_type" \
  --model_size "$model_size" \
  --max_context_width 4096 \
  "${shape[@]}" \
  --shard_degree "${shard_degree:-$default_degree}" \
  --tensor_parallel_degree 1 \
  --use_smp_implementation 1 \
  --sharding_strategy hybrid_shard \
  --activation_checkpointing 1 \
  --bf16 1 \
  --fp8 0 \
  --lr 0.0001 \
  --lr_decay_iters 47683 \
  --dataset_type hf \
  "${data[@]}" \
  --checkpoint_dir ./checkpoints \
  --checkpoint_freq 100 \
  --num_kept_checkpoints 2 \
  --profile_nsys 1 \
  "$@"
