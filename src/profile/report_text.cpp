#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "profile/profile_report.h"

namespace tessera {
namespace {

std::string ms(double seconds) { return format("%.3f", seconds * 1e3); }
std::string percent(double share) { return format("%.1f %%", share * 100); }
std::string light_text(double light) { return light < 0 ? "" : percent(light); }
std::string rate(double amount, double seconds) {
  return amount > 0 && seconds > 0 ? format("%.2f", amount / seconds * 1e-9) : "";
}

// Columns as wide as they have to be, the first to the left, all others to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> head) { lines_.push_back(std::move(head)); }
  void add(std::vector<std::string> line) { lines_.push_back(std::move(line)); }

  std::string text(const std::string& title) const {
    std::vector<size_t> widths;
    for (const auto& line : lines_) {
      widths.resize(std::max(widths.size(), line.size()));
      for (size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], line[c].size());
    }
    std::string text = cat("\n", title, "\n");
    for (const auto& line : lines_) {
      std::string row = "  ";
      for (size_t c = 0; c < line.size(); ++c) {
        const std::string space(widths[c] - line[c].size(), ' ');
        row += c == 0 ? cat(line[c], space) : cat("  ", space, line[c]);
      }
      row.erase(row.find_last_not_of(' ') + 1);
      text += row + "\n";
    }
    return text;
  }

 private:
  std::vector<std::vector<std::string>> lines_;
};

std::string waited_for(const RankRow& row) {
  std::vector<std::pair<double, int64_t>> others;
  for (const auto& [rank, seconds] : row.waited_for) others.emplace_back(seconds, rank);
  std::sort(others.rbegin(), others.rend());
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(3, others.size()); ++i)
    text += cat(i > 0 ? ", " : "", "rank ", others[i].second, ": ", ms(others[i].first));
  return text;
}

nlohmann::json rows_json(const std::vector<ProfileRow>& rows) {
  auto list = nlohmann::json::array();
  for (const ProfileRow& row : rows) {
    nlohmann::json entry{{"name", row.name},   {"calls", row.calls}, {"seconds", row.seconds},
                         {"share", row.share}, {"flops", row.flops}, {"bytes", row.bytes}};
    if (!row.phase.empty()) entry["phase"] = row.phase;
    if (row.light >= 0) entry["share_of_light"] = row.light;
    list.push_back(std::move(entry));
  }
  return list;
}

nlohmann::json buffers_json(const std::vector<LiveBuffer>& buffers) {
  auto list = nlohmann::json::array();
  for (const LiveBuffer& buffer : buffers)
    list.push_back({{"name", buffer.name}, {"bytes", buffer.bytes}});
  return list;
}

// File names and scopes may hold any bytes.
std::string dump(const nlohmann::json& value) {
  return value.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

struct Difference {
  std::string name, phase;
  double a = 0, b = 0;
};

std::vector<Difference> differences(const std::vector<ProfileRow>& a,
                                    const std::vector<ProfileRow>& b) {
  std::map<std::pair<std::string, std::string>, Difference> all;
  for (const ProfileRow& row : a) all[{row.name, row.phase}].a = row.seconds;
  for (const ProfileRow& row : b) all[{row.name, row.phase}].b = row.seconds;
  std::vector<Difference> list;
  for (auto& [key, difference] : all) {
    difference.name = key.first;
    difference.phase = key.second;
    list.push_back(difference);
  }
  std::stable_sort(list.begin(), list.end(), [](const Difference& x, const Difference& y) {
    return std::abs(x.b - x.a) > std::abs(y.b - y.a);
  });
  return list;
}

std::string change(double a, double b) {
  return a > 0 ? format("%+.1f %%", (b / a - 1) * 100) : "new";
}

nlohmann::json differences_json(const std::vector<Difference>& list) {
  auto all = nlohmann::json::array();
  for (const Difference& d : list) {
    nlohmann::json entry{{"name", d.name}, {"a", d.a}, {"b", d.b}, {"difference", d.b - d.a}};
    if (!d.phase.empty()) entry["phase"] = d.phase;
    all.push_back(std::move(entry));
  }
  return all;
}

}  // namespace

std::string report_text(const ProfileReport& r, size_t most) {
  std::string text = cat(r.steps, " steps, from ", r.first_step, " to ", r.last_step, ", of ",
                         r.ranks, " of ", r.world_size, " ranks: ", ms(r.step_seconds),
                         " ms a step. Milliseconds are those of a step of a rank.\n");
  if (r.lost > 0)
    text += cat(r.lost, " instructions were not recorded: there was no room for them\n");
  if (r.clock_error > 0)
    text += cat("Clocks of the ranks agree to ", format("%.1f", r.clock_error * 1e6), " us\n");
  Table phases({"phase", "ms", "share", "% light"});
  for (const ProfileRow& row : r.by_phase)
    phases.add({row.name, ms(row.seconds), percent(row.share), light_text(row.light)});
  text += phases.text("By phase");
  Table ops({"op", "phase", "calls", "ms", "share", "GFLOP/s", "GB/s", "% light"});
  for (size_t i = 0; i < std::min(most, r.by_op.size()); ++i) {
    const ProfileRow& row = r.by_op[i];
    ops.add({row.name, row.phase, format("%.4g", row.calls), ms(row.seconds), percent(row.share),
             rate(row.flops, row.seconds), rate(row.bytes, row.seconds), light_text(row.light)});
  }
  if (r.by_op.size() > most) {
    double rest = 0;
    for (size_t i = most; i < r.by_op.size(); ++i) rest += r.by_op[i].seconds;
    ops.add({cat(r.by_op.size() - most, " others"), "", "", ms(rest),
             percent(r.step_seconds > 0 ? rest / r.step_seconds : 0)});
  }
  text += ops.text("By op");
  Table layers({"layer", "ms", "share", "% light"});
  for (const ProfileRow& row : r.by_layer)
    layers.add({row.name.empty() ? "(none)" : row.name, ms(row.seconds), percent(row.share),
                light_text(row.light)});
  text += layers.text("By layer");
  Table ranks({"rank", "step", "computing", "waiting", "data", "other", "exchanges beside",
               "kept others waiting", "waited for"});
  for (const RankRow& row : r.by_rank)
    ranks.add({cat(row.rank), ms(row.step), ms(row.computing), ms(row.waiting), ms(row.data),
               ms(row.other), ms(row.exchanging), ms(row.kept_waiting), waited_for(row)});
  text += ranks.text("By rank (ms)");
  if (!r.exchanges.empty()) {
    Table exchanges({"exchange", "over", "calls", "sent", "ms", "GB/s", "waited ms"});
    for (const ExchangeRow& row : r.exchanges)
      exchanges.add({row.op, row.axes, format("%.4g", row.calls),
                     format_bytes(static_cast<int64_t>(std::min(row.bytes, 1e18))), ms(row.seconds),
                     rate(row.bytes, row.seconds), ms(row.waiting)});
    text += exchanges.text("Exchanges");
  }
  int64_t state = 0;
  for (const LiveBuffer& buffer : r.state) state += std::min(buffer.bytes, int64_t{1} << 58);
  Table live({"live at the peak", "bytes", ""});
  for (const LiveBuffer& buffer : r.peak.live)
    live.add({buffer.name, cat(buffer.bytes), format_bytes(buffer.bytes)});
  if (!r.peak.program.empty())
    text +=
        live.text(cat("Memory: ", format_bytes(state), " of state, and at most ",
                      format_bytes(r.peak.bytes), " live in ", r.peak.program,
                      r.peak.at.empty() ? " by its compiler's account" : cat(", at ", r.peak.at)));
  return text;
}

std::string report_json(const ProfileReport& r) {
  auto ranks = nlohmann::json::array();
  for (const RankRow& row : r.by_rank) {
    nlohmann::json waited = nlohmann::json::object();
    for (const auto& [rank, seconds] : row.waited_for) waited[cat(rank)] = seconds;
    ranks.push_back({{"rank", row.rank},
                     {"host", row.host},
                     {"step_seconds", row.step},
                     {"computing_seconds", row.computing},
                     {"waiting_seconds", row.waiting},
                     {"data_seconds", row.data},
                     {"other_seconds", row.other},
                     {"exchanging_seconds", row.exchanging},
                     {"kept_waiting_seconds", row.kept_waiting},
                     {"waited_for", waited}});
  }
  auto exchanges = nlohmann::json::array();
  for (const ExchangeRow& row : r.exchanges)
    exchanges.push_back({{"op", row.op},
                         {"axes", row.axes},
                         {"calls", row.calls},
                         {"bytes_sent", row.bytes},
                         {"seconds", row.seconds},
                         {"waiting_seconds", row.waiting}});
  return dump({{"first_step", r.first_step},
               {"steps", r.steps},
               {"ranks", r.ranks},
               {"world_size", r.world_size},
               {"step_seconds", r.step_seconds},
               {"clock_error_seconds", r.clock_error},
               {"lost_instructions", r.lost},
               {"by_phase", rows_json(r.by_phase)},
               {"by_op", rows_json(r.by_op)},
               {"by_layer", rows_json(r.by_layer)},
               {"by_rank", ranks},
               {"exchanges", exchanges},
               {"state", buffers_json(r.state)},
               {"peak",
                {{"program", r.peak.program},
                 {"at", r.peak.at},
                 {"bytes", r.peak.bytes},
                 {"live", buffers_json(r.peak.live)}}}});
}

std::string diff_text(const ProfileReport& a, const ProfileReport& b, size_t most) {
  std::string text = cat("A step takes ", ms(a.step_seconds), " ms in A and ", ms(b.step_seconds),
                         " ms in B (", change(a.step_seconds, b.step_seconds), ")\n");
  auto add = [&](const char* title, const char* what, const std::vector<ProfileRow>& of_a,
                 const std::vector<ProfileRow>& of_b) {
    const bool of_ops = &of_a == &a.by_op;
    std::vector<std::string> head{what, "A ms", "B ms", "B - A", "change"};
    if (of_ops) head.insert(head.begin() + 1, "phase");
    Table table(head);
    size_t lines = 0;
    for (const Difference& d : differences(of_a, of_b)) {
      if (lines++ == most) break;
      std::vector<std::string> line{d.name.empty() ? "(none)" : d.name, ms(d.a), ms(d.b),
                                    format("%+.3f", (d.b - d.a) * 1e3),
                                    d.b > 0 ? change(d.a, d.b) : "gone"};
      if (of_ops) line.insert(line.begin() + 1, d.phase);
      table.add(line);
    }
    text += table.text(title);
  };
  add("By phase", "phase", a.by_phase, b.by_phase);
  add("By op", "op", a.by_op, b.by_op);
  add("By layer", "layer", a.by_layer, b.by_layer);
  return text;
}

std::string diff_json(const ProfileReport& a, const ProfileReport& b) {
  return dump({{"step_seconds", {{"a", a.step_seconds}, {"b", b.step_seconds}}},
               {"by_phase", differences_json(differences(a.by_phase, b.by_phase))},
               {"by_op", differences_json(differences(a.by_op, b.by_op))},
               {"by_layer", differences_json(differences(a.by_layer, b.by_layer))}});
}

}  // namespace tessera
