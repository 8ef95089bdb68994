#include "observe/metrics_file.h"

#include <cmath>

#include "base/clock.h"
#include "base/hash.h"
#include "base/text.h"

namespace tessera {
namespace {

// JSON has no NaN: a number that is not finite is null.
std::string number(double x) { return std::isfinite(x) ? cat(x) : "null"; }

std::string share(std::string_view key, std::optional<double> value) {
  return value ? cat(key, *value) : "";
}

}  // namespace

void MetricsFile::write(int64_t batch, const std::string& rest) {
  file_.append(cat("{\"time\":\"", utc_time(), "\",\"batch\":", batch, rest, "}\n"));
}

void MetricsFile::step(const StepReport& r) {
  write(
      r.batch,
      cat(",\"epoch\":", r.epoch, ",\"loss\":", number(r.loss),
          r.z_loss ? cat(",\"z_loss\":", number(*r.z_loss)) : "", ",\"learning_rate\":",
          number(r.learning_rate), ",\"gradient_norm\":", number(r.gradient_norm),
          r.loss_scale ? cat(",\"loss_scale\":", number(*r.loss_scale)) : "", ",\"ok\":", r.ok,
          ",\"samples\":", r.samples, ",\"tokens\":", r.tokens, ",\"tokens_seen\":", r.tokens_seen,
          ",\"step_seconds\":", number(r.step_seconds),
          ",\"data_seconds\":", number(r.data_seconds),
          r.exchange_seconds ? cat(",\"exchange_seconds\":", number(*r.exchange_seconds)) : "",
          r.batches_ready ? cat(",\"batches_ready\":", *r.batches_ready) : "",
          r.data_hash ? cat(",\"data_hash\":\"", hex(*r.data_hash), "\"") : "",
          ",\"tokens_per_second\":",
          number(per_second(static_cast<double>(r.tokens), r.step_seconds)),
          ",\"flops\":", number(r.flops), ",\"recomputed_flops\":", number(r.recomputed_flops),
          share(",\"mfu\":", model_flops_utilization(r)),
          share(",\"hfu\":", hardware_flops_utilization(r)), ",\"memory_bytes\":", r.memory_bytes));
}

void MetricsFile::validation(const ValidationReport& r) {
  write(r.batch, cat(",\"epoch\":", r.epoch, ",\"tokens_seen\":", r.tokens_seen,
                     ",\"validation_loss\":", number(r.loss),
                     ",\"validation_perplexity\":", number(r.perplexity)));
}

void MetricsFile::stragglers(const StragglerReport& r) {
  write(r.batch,
        cat(",\"slowest_rank\":", r.rank, ",\"slowest_host\":\"", r.host, "\",\"slowest_phase\":\"",
            r.phase, "\",\"slowest_seconds\":", number(r.seconds),
            ",\"others_seconds\":", number(r.median_seconds), ",\"straggler\":", r.is_straggler));
}

}  // namespace tessera
