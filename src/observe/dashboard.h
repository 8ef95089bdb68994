#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "observe/reports.h"
#include "observe/thinned_series.h"
#include "serve/http_server.h"

namespace tessera {

// Names of things and what they are, as a page shows them.
using DashboardFacts = std::vector<std::pair<std::string, std::string>>;

// What one rank tells of itself, a JSON object: rank, host, process, doing, doing_seconds, and of
// its last step: step (done), step_seconds, exchange_seconds, data_seconds (null where there is
// none); memory_bytes.
struct RankState {
  int rank = 0;
  std::string host;
  int64_t process = 0;
  std::string doing;
  double doing_seconds = 0;
  std::optional<StepReport> last;
};
std::string to_json(const RankState& state);

// A run on a page that keeps itself up to date: how far it is, curves, ranks, memory, what happened
// last. It is served at an address that nobody can guess: /TOKEN/; everything else is answered by
// 403. Where it cannot be served a warning says so, and the run goes on.
//
// The page asks /TOKEN/state/CURVE/COUNT for what is new beside the COUNT points that it has of
// that curve: one of other steps a point, or of a run that went back, is another. What it gets is
// bounded, however long the run is.
class Dashboard final : public MetricsSink {
 public:
  Dashboard(const HttpServer::Options& options, std::string title, DashboardFacts facts);
  ~Dashboard() override;

  // Where the page is: "http://127.0.0.1:8080/0f3a.../"; "" where nothing is served.
  std::string url() const;
  int port() const { return server_ ? server_->port() : 0; }

  void steps(int64_t first, int64_t total);
  // Bytes of a rank by what they hold.
  void planned_memory(std::vector<std::pair<std::string, int64_t>> parts);
  void doing(const std::string& what) override;
  // What every rank says, by rank: to_json(RankState).
  void ranks(const std::vector<std::string>& states);
  // A line of the log. Progress lines are left out: the page has their numbers.
  void event(LogLevel level, std::string_view message);
  // Steps and validations of before this process: `step` of them done.
  void earlier_step(double step, double loss, double learning_rate, double gradient_norm,
                    double tokens_per_second);
  void earlier_validation(double step, double loss);

  void step(const StepReport& report) override;
  void validation(const ValidationReport& report) override;
  void rewound(int64_t steps) override;
  void end(const EndReport& report) override;

 private:
  struct Event {
    double time = 0;  // since 1970
    LogLevel level = LogLevel::kInfo;
    std::string message;
  };
  HttpServer::Reply answer(const HttpServer::Request& request);
  std::string state(int64_t curve, int64_t count);

  const std::string address_, token_, title_;
  const DashboardFacts facts_;
  const double start_time_;
  std::mutex events_mutex_;  // its own: a line may be logged while the other is held
  std::deque<Event> events_;
  std::mutex mutex_;
  int64_t first_step_ = 0, total_steps_ = 0, skipped_ = 0, rewinds_ = 0;
  std::vector<std::pair<std::string, int64_t>> memory_;
  std::string doing_;
  double doing_since_ = 0, ranks_heard_ = 0;  // by the monotonic clock
  std::vector<std::string> ranks_;
  std::optional<StepReport> last_;
  std::optional<double> validation_loss_;
  std::optional<EndReport> end_;
  ThinnedSeries curves_, validations_;
  std::unique_ptr<HttpServer> server_;  // behind what it reads
};

}  // namespace tessera
