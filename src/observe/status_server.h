#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "observe/reports.h"
#include "serve/http_server.h"

namespace tessera {

// The last reports of a run as Prometheus reads them (its text format, version 0.0.4). `rank` is a
// label of every number. docs/metrics.md has the names.
struct RunStatus {
  int rank = 0;
  std::string model;
  std::optional<StepReport> step;
  std::optional<ValidationReport> validation;
  std::optional<StragglerReport> slowest;
  std::optional<EndReport> end;
  int64_t skipped_updates = 0;
  double last_step_time = 0;  // seconds since 1970
};
std::string prometheus_text(const RunStatus& status);

// Serves the state of a run over HTTP: /metrics for Prometheus; /healthz, which answers as long as
// the process does, and /readyz, whose status is 200 while steps are being done and 503 before and
// after, for Kubernetes. Where nothing can be served a warning says so, and the run goes on.
class StatusServer final : public MetricsSink {
 public:
  StatusServer(const HttpServer::Options& options, int rank, std::string model);
  // 0 where nothing is served.
  int port() const { return server_ ? server_->port() : 0; }
  void step(const StepReport& report) override;
  void validation(const ValidationReport& report) override;
  void stragglers(const StragglerReport& report) override;
  void end(const EndReport& report) override;

 private:
  HttpServer::Reply answer(const HttpServer::Request& request);

  std::mutex mutex_;
  RunStatus status_;
  std::unique_ptr<HttpServer> server_;  // behind what it reads
};

}  // namespace tessera
