#include "observe/status_server.h"

#include <cmath>
#include <utility>

#include "base/text.h"
#include "observe/event_time.h"

namespace tessera {
namespace {

// A label's value between quotes.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return out;
}

class MetricsText {
 public:
  explicit MetricsText(int rank) : labels_(cat("{rank=\"", rank, "\"")) {}
  void gauge(std::string_view name, double value, std::string_view help) {
    add(name, "gauge", value, help);
  }
  void counter(std::string_view name, double value, std::string_view help) {
    add(name, "counter", value, help);
  }
  void gauge(std::string_view name, double value, std::string_view help,
             const std::vector<std::pair<std::string_view, std::string_view>>& labels) {
    std::string more;
    for (const auto& [label, text] : labels) more += cat(",", label, "=\"", escaped(text), "\"");
    add(name, "gauge", value, help, more);
  }
  const std::string& text() const { return text_; }

 private:
  void add(std::string_view name, std::string_view type, double value, std::string_view help,
           const std::string& label = "") {
    const std::string number = std::isnan(value)   ? "NaN"
                               : std::isinf(value) ? (value > 0 ? "+Inf" : "-Inf")
                                                   : cat(value);
    text_ += cat("# HELP tessera_", name, " ", help, "\n# TYPE tessera_", name, " ", type,
                 "\ntessera_", name, labels_, label, "} ", number, "\n");
  }
  std::string labels_, text_;
};

void add_step(MetricsText& out, const StepReport& r) {
  auto speed = [&](double amount) { return per_second(amount, r.step_seconds); };
  out.counter("steps_total", static_cast<double>(r.batch + 1), "Optimizer steps of the whole job.");
  out.counter("tokens_total", static_cast<double>(r.tokens_seen),
              "Predicted tokens of the whole job.");
  out.gauge("epoch", static_cast<double>(r.epoch), "Epoch of the last step, counted from 1.");
  out.gauge("loss", r.loss, "Mean loss of the last step's tokens.");
  out.gauge("learning_rate", r.learning_rate, "Rate that the last update used.");
  out.gauge("gradient_norm", r.gradient_norm, "Before clipping.");
  out.gauge("samples_per_second", speed(static_cast<double>(r.samples)), "Of all ranks.");
  out.gauge("tokens_per_second", speed(static_cast<double>(r.tokens)), "Of all ranks.");
  out.gauge("model_flops_per_second", speed(r.flops), "Of this rank, recomputation left out.");
  out.gauge("hardware_flops_per_second", speed(r.flops + r.recomputed_flops), "Of this rank.");
  if (const auto mfu = model_flops_utilization(r))
    out.gauge("mfu", *mfu, "Model FLOPs utilization, 0 to 1.");
  out.gauge("step_seconds", r.step_seconds, "Of the last step, waiting for data excluded.");
  out.gauge("data_wait_seconds", r.data_seconds, "That the last step waited for data.");
  if (r.exchange_seconds)
    out.gauge("exchange_wait_seconds", *r.exchange_seconds,
              "That the last step waited for other ranks.");
  out.gauge("resident_memory_bytes", static_cast<double>(r.memory_bytes), "Of this process.");
  out.gauge("allocated_memory_bytes", static_cast<double>(r.allocated_bytes),
            "State and arena, as planned.");
  if (r.seconds_left >= 0)
    out.gauge("remaining_seconds", r.seconds_left, "Until the last step, at this pace.");
}

}  // namespace

std::string prometheus_text(const RunStatus& status) {
  MetricsText out(status.rank);
  out.gauge("run_info", 1, "What is trained.", {{"model", status.model}});
  if (status.step) {
    add_step(out, *status.step);
    out.counter("skipped_updates_total", static_cast<double>(status.skipped_updates),
                "Updates of this process that were left out: not finite, or loss spikes.");
    out.gauge("last_step_timestamp_seconds", status.last_step_time,
              "When the last step ended, since 1970.");
  }
  if (status.validation) {
    out.gauge("validation_loss", status.validation->loss, "Of the last validation.");
    out.gauge("validation_perplexity", status.validation->perplexity, "Of the last validation.");
  }
  if (status.slowest) {
    const StragglerReport& r = *status.slowest;
    out.gauge("slowest_rank", r.rank, "That took longest in a phase, beside the others.",
              {{"phase", r.phase}, {"host", r.host}});
    out.gauge("slowest_rank_seconds", r.seconds, "Its time of a step in that phase.");
    out.gauge("other_ranks_seconds", r.median_seconds, "The median of the others.");
    out.gauge("straggler", r.is_straggler ? 1 : 0, "Whether that is beyond straggler_threshold.");
  }
  return out.text();
}

StatusServer::StatusServer(const HttpServer::Options& options, int rank, std::string model) {
  status_.rank = rank;
  status_.model = std::move(model);
  server_ = serve_if_possible(
      options, [this](const HttpServer::Request& request) { return answer(request); });
}

void StatusServer::step(const StepReport& report) {
  std::lock_guard lock(mutex_);
  status_.step = report;
  status_.skipped_updates += report.ok ? 0 : 1;
  status_.last_step_time = unix_seconds();
}

void StatusServer::validation(const ValidationReport& report) {
  std::lock_guard lock(mutex_);
  status_.validation = report;
}

void StatusServer::stragglers(const StragglerReport& report) {
  std::lock_guard lock(mutex_);
  status_.slowest = report;
}

void StatusServer::end(const EndReport& report) {
  std::lock_guard lock(mutex_);
  status_.end = report;
}

HttpServer::Reply StatusServer::answer(const HttpServer::Request& request) {
  if (request.path == "/healthz") return {200, "ok\n"};
  std::lock_guard lock(mutex_);
  if (request.path == "/readyz") {
    if (status_.end) return {503, "the run has ended\n"};
    return status_.step ? HttpServer::Reply{200, "ok\n"}
                        : HttpServer::Reply{503, "no step is done yet\n"};
  }
  if (request.path == "/metrics")
    return {200, prometheus_text(status_), "text/plain; version=0.0.4; charset=utf-8"};
  return {404, "there are /metrics, /healthz and /readyz\n"};
}

}  // namespace tessera
