#include "observe/dashboard.h"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/cryptography.h"
#include "base/parse_number.h"
#include "base/process_identity.h"
#include "base/text.h"
#include "observe/dashboard_page.h"
#include "observe/event_time.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

// Wide windows have about so many pixels; a page that is opened gets all of them.
constexpr size_t kMostPoints = 1024;
constexpr size_t kMostEvents = 60, kLongestEvent = 2000;

// Six digits are more than a picture shows. Not finite: null.
Json rounded(double x) {
  if (!std::isfinite(x)) return nullptr;
  return parse_number<double>(format("%.6g", x)).value_or(0);
}

Json rounded(const std::optional<double>& x) { return x ? rounded(*x) : Json(nullptr); }

// [step, and of every number its mean, least and greatest value].
Json to_array(const ThinnedSeries::Point& point) {
  Json array = Json::array({point.step});
  for (const ThinnedSeries::Summary& s : point.numbers) {
    array.push_back(rounded(s.mean));
    array.push_back(rounded(s.low));
    array.push_back(rounded(s.high));
  }
  return array;
}

Json points_from(const ThinnedSeries& series, size_t first) {
  Json points = Json::array();
  for (size_t i = first; i < series.points().size(); ++i)
    points.push_back(to_array(series.points()[i]));
  return points;
}

// JSON takes UTF-8 only, and names of files and hosts may be anything.
std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

double tokens_per_second(const StepReport& r) {
  return per_second(static_cast<double>(r.tokens), r.step_seconds);
}

Json last_step(const StepReport& r) {
  return {{"loss", rounded(r.loss)},
          {"learning_rate", rounded(r.learning_rate)},
          {"gradient_norm", rounded(r.gradient_norm)},
          {"tokens_per_second", rounded(tokens_per_second(r))},
          {"mfu", rounded(model_flops_utilization(r))},
          {"loss_scale", rounded(r.loss_scale)},
          {"seconds_left", r.seconds_left >= 0 ? rounded(r.seconds_left) : Json(nullptr)},
          {"elapsed_seconds", rounded(r.elapsed_seconds)},
          {"step_seconds", rounded(r.step_seconds)},
          {"data_seconds", rounded(r.data_seconds)},
          {"epoch", r.epoch},
          {"tokens_seen", r.tokens_seen},
          {"memory_bytes", r.memory_bytes}};
}

}  // namespace

std::string to_json(const RankState& state) {
  Json json{{"rank", state.rank},
            {"host", state.host},
            {"process", state.process},
            {"doing", state.doing},
            {"doing_seconds", rounded(state.doing_seconds)},
            {"memory_bytes", resident_bytes()}};
  if (const auto& r = state.last) {
    json["step"] = r->batch + 1;
    json["step_seconds"] = rounded(r->step_seconds);
    json["exchange_seconds"] = rounded(r->exchange_seconds);
    json["data_seconds"] = rounded(r->data_seconds);
  }
  return dump(json);
}

Dashboard::Dashboard(const HttpServer::Options& options, std::string title, DashboardFacts facts)
    : address_(options.address),
      token_(hex(secret_random_bytes(16))),
      title_(std::move(title)),
      facts_(std::move(facts)),
      start_time_(unix_seconds()),
      doing_("starting"),
      doing_since_(monotonic_seconds()),
      curves_(4, kMostPoints),
      validations_(1, kMostPoints) {
  server_ = serve_if_possible(
      options, [this](const HttpServer::Request& request) { return answer(request); });
  // The address is the key to the page: whoever reads the log may look, and nobody else.
  if (server_) log_line(LogLevel::kInfo, __FILE__, __LINE__, cat("Dashboard: ", url()), true);
  set_log_listener([this](LogLevel level, std::string_view message) { event(level, message); });
}

Dashboard::~Dashboard() { set_log_listener({}); }

std::string Dashboard::url() const {
  if (!server_) return "";
  const bool every = address_ == "0.0.0.0" || address_ == "::";
  const std::string host = every                                     ? host_name()
                           : address_.find(':') == std::string::npos ? address_
                                                                     : cat("[", address_, "]");
  return cat("http://", host, ":", server_->port(), "/", token_, "/");
}

void Dashboard::steps(int64_t first, int64_t total) {
  std::lock_guard lock(mutex_);
  first_step_ = first;
  total_steps_ = total;
}

void Dashboard::planned_memory(std::vector<std::pair<std::string, int64_t>> parts) {
  std::lock_guard lock(mutex_);
  memory_ = std::move(parts);
}

void Dashboard::doing(const std::string& what) {
  std::lock_guard lock(mutex_);
  doing_ = what;
  doing_since_ = monotonic_seconds();
}

void Dashboard::ranks(const std::vector<std::string>& states) {
  std::lock_guard lock(mutex_);
  ranks_ = states;
  ranks_heard_ = monotonic_seconds();
}

void Dashboard::event(LogLevel level, std::string_view message) {
  const bool is_progress = message.starts_with("Batch ") || message.starts_with("Report:");
  if (level == LogLevel::kDebug || (level == LogLevel::kInfo && is_progress)) return;
  std::lock_guard lock(events_mutex_);
  events_.push_back({unix_seconds(), level, std::string(message.substr(0, kLongestEvent))});
  if (events_.size() > kMostEvents) events_.pop_front();
}

void Dashboard::earlier_step(double step, double loss, double learning_rate, double gradient_norm,
                             double tokens_per_second) {
  std::lock_guard lock(mutex_);
  curves_.add(step, std::array{loss, learning_rate, gradient_norm, tokens_per_second});
}

void Dashboard::earlier_validation(double step, double loss) {
  std::lock_guard lock(mutex_);
  validations_.add(step, std::array{loss});
  validation_loss_ = loss;
}

void Dashboard::step(const StepReport& report) {
  earlier_step(static_cast<double>(report.batch + 1), report.loss, report.learning_rate,
               report.gradient_norm, tokens_per_second(report));
  std::lock_guard lock(mutex_);
  last_ = report;
  skipped_ += report.ok ? 0 : 1;
}

void Dashboard::validation(const ValidationReport& report) {
  earlier_validation(static_cast<double>(report.batch + 1), report.loss);
}

void Dashboard::rewound(int64_t steps) {
  std::lock_guard lock(mutex_);
  curves_.cut_behind(static_cast<double>(steps));
  validations_.cut_behind(static_cast<double>(steps));
  ++rewinds_;
}

void Dashboard::end(const EndReport& report) {
  std::lock_guard lock(mutex_);
  end_ = report;
}

std::string Dashboard::state(int64_t curve, int64_t count) {
  Json events = Json::array();
  {
    std::lock_guard lock(events_mutex_);
    for (const Event& event : events_)
      events.push_back({event.time, static_cast<int>(event.level), event.message});
  }
  std::lock_guard lock(mutex_);
  Json ranks = Json::array();
  for (const std::string& text : ranks_) {
    Json rank = Json::parse(text, nullptr, false);
    if (rank.is_object()) ranks.push_back(std::move(rank));
  }
  const double now = monotonic_seconds();
  // Another number where points are others than those that the page has: they were joined, or taken
  // back. Of those that it has the last one may have changed.
  const int64_t own_curve = (rewinds_ << 32) + curves_.stride();
  const bool goes_on =
      curve == own_curve && count > 0 && count <= static_cast<int64_t>(curves_.points().size());
  const size_t first = goes_on ? static_cast<size_t>(count - 1) : 0;
  return dump({{"title", title_},
               {"facts", facts_},
               {"start_time", start_time_},
               {"doing", doing_},
               {"doing_seconds", rounded(now - doing_since_)},
               {"end", !end_ ? Json(nullptr) : Json(end_->failed ? "failed" : "ended")},
               {"step", last_ ? last_->batch + 1 : first_step_},
               {"steps", total_steps_},
               {"skipped", skipped_},
               {"last", last_ ? last_step(*last_) : Json(nullptr)},
               {"validation_loss", rounded(validation_loss_)},
               {"memory", memory_},
               {"ranks", ranks},
               {"ranks_heard", ranks.empty() ? Json(nullptr) : rounded(now - ranks_heard_)},
               {"events", events},
               {"stride", curves_.stride()},
               {"curve", own_curve},
               {"first", first},
               {"points", points_from(curves_, first)},
               {"validations", points_from(validations_, 0)}});
}

HttpServer::Reply Dashboard::answer(const HttpServer::Request& request) {
  // "", token, what is asked for.
  const std::vector<std::string_view> parts = split(request.path, '/');
  if (parts.size() < 2 || !equal_in_constant_time(parts[1], token_))
    return {403, "the log of the run has the whole address of this page\n"};
  if (parts.size() == 2 || (parts.size() == 3 && parts[2].empty()))
    return {200, dashboard_page(), "text/html; charset=utf-8"};
  if (parts.size() == 5 && parts[2] == "state") {
    const auto curve = parse_number<int64_t>(parts[3]), count = parse_number<int64_t>(parts[4]);
    if (curve >= 0 && count >= 0) return {200, state(*curve, *count), "application/json"};
  }
  return {404, "there are the page and state/CURVE/COUNT\n"};
}

}  // namespace tessera
