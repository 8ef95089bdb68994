#include "observe/scalars.h"

namespace tessera {

std::vector<Scalar> scalars_of(const StepReport& r) {
  const double tera_flops = per_second(r.flops, r.step_seconds) / 1e12;
  const double recomputed = per_second(r.recomputed_flops, r.step_seconds) / 1e12;
  std::vector<Scalar> scalars{
      {"Loss/train", r.loss},
      {"LR/learning_rate", r.learning_rate},
      {"Norms/grad_norm", r.gradient_norm},
      {"Perf/SeqPerSec", per_second(static_cast<double>(r.samples), r.step_seconds)},
      {"Perf/TokensPerSec", per_second(static_cast<double>(r.tokens), r.step_seconds)},
      {"Perf/ModelTFLOPs", tera_flops},
      {"Perf/HardwareTFLOPs", tera_flops + recomputed},
      {"Perf/step_seconds", r.step_seconds},
      {"Perf/data_seconds", r.data_seconds},
      {"Memory/resident_GiB", static_cast<double>(r.memory_bytes) / (int64_t{1} << 30)},
      {"Data/epoch", static_cast<double>(r.epoch)},
      {"Data/tokens_seen", static_cast<double>(r.tokens_seen)}};
  if (const auto mfu = model_flops_utilization(r)) scalars.push_back({"Perf/MFU", *mfu});
  if (const auto hfu = hardware_flops_utilization(r)) scalars.push_back({"Perf/HFU", *hfu});
  if (r.exchange_seconds) scalars.push_back({"Perf/exchange_seconds", *r.exchange_seconds});
  if (r.z_loss) scalars.push_back({"Loss/z_loss", *r.z_loss});
  if (r.loss_scale) scalars.push_back({"Loss/scale", *r.loss_scale});
  if (r.batches_ready)
    scalars.push_back({"Data/batches_ready", static_cast<double>(*r.batches_ready)});
  return scalars;
}

std::vector<Scalar> scalars_of(const ValidationReport& r) {
  return {{"Loss/val", r.loss}, {"Loss/perplexity", r.perplexity}};
}

}  // namespace tessera
