#include "doctor/doctor_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/median.h"
#include "base/text.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostRows = 16;
constexpr double kClocks = 0.1;       // seconds that clocks may differ
constexpr double kSlowProduct = 0.8;  // of the median
constexpr double kSlowLink = 0.5, kSlowDisk = 0.5;
constexpr double kLateLink = 3;  // times the median

std::string rank_name(const Json& found, size_t rank) {
  return cat("rank ", rank, " (", found["ranks"][rank]["host"].get<std::string>(), ")");
}

std::string bytes_or_none(const Json& value) {
  return value.is_null() ? "none" : format_bytes(value.get<int64_t>());
}

std::string rate(double bytes) { return format("%.2f GB/s", bytes / 1e9); }

class Warnings {
 public:
  explicit Warnings(const Json& found) : found_(found) {}

  std::vector<std::string> all() {
    for (size_t rank = 0; rank < found_["ranks"].size(); ++rank) check_host(rank);
    check_alike("usable_cores", "cores that it may use");
    check_alike("isa", "instructions for its kernels, so other rounding");
    check_products();
    check_links();
    for (const Json& directory : found_["directories"]) check(directory);
    return std::move(texts_);
  }

 private:
  void warn(size_t rank, const std::string& what) {
    texts_.push_back(cat(rank_name(found_, rank), ": ", what));
  }

  void check_host(size_t rank) {
    const Json& host = found_["ranks"][rank];
    const double ahead = host["clock_offset"];
    if (std::fabs(ahead) > kClocks) {
      warn(rank, format("its clock is %.3f s %s that of rank 0: logs do not match, and signed "
                        "requests may be refused; let the hosts run NTP",
                        std::fabs(ahead), ahead > 0 ? "ahead of" : "behind"));
    }
    if (host["huge_pages"] == "never")
      warn(rank, "transparent huge pages are off: memory is slower to fill and to read");
    if (host["shared_memory"].is_null()) warn(rank, "there is no /dev/shm");
    const bool has_gpus = host["gpus"] > 0, has_efa = host["efa_devices"] > 0;
    if (has_gpus && host["gpu_driver"] == "") warn(rank, "GPUs without a driver that is loaded");
    if (has_gpus && host["nccl"] == "") warn(rank, "GPUs, but no libnccl.so.2 is found");
    if (has_gpus && has_efa && host["nccl_plugin"] == "") {
      warn(rank,
           "EFA devices, but no plugin of NCCL for them (aws-ofi-nccl): it falls back to "
           "sockets without a word");
    }
    const Json cuda = host.value("cuda", Json::object());
    if (has_gpus && cuda.contains("has_driver") && !cuda["has_driver"])
      warn(rank,
           cat("GPUs that --device_type cuda cannot use: ", cuda["driver"].get<std::string>()));
    if (cuda.value("has_driver", false) && !cuda["has_kernels"])
      warn(rank, "a CUDA driver, but this build of tessera has no CUDA kernels");
    for (const Json& plugin : host["xla_plugins"]) {
      if (plugin["error"] != "")
        warn(rank, cat("plug-in of XLA: ", plugin["text"].get<std::string>()));
    }
    const Json& locked = host["locked_memory_limit"];
    if (has_efa && !locked.is_null() && locked < int64_t{1} << 30)
      warn(rank, cat("only ", bytes_or_none(locked),
                     " may be locked, which EFA needs more of: ulimit -l unlimited"));
  }

  void check_alike(const char* key, const char* what) {
    std::map<std::string, std::vector<size_t>> ranks;
    for (size_t rank = 0; rank < found_["ranks"].size(); ++rank)
      ranks[found_["ranks"][rank][key].dump()].push_back(rank);
    if (ranks.size() < 2) return;
    auto usual = std::ranges::max_element(ranks, {}, [](auto& r) { return r.second.size(); });
    for (const auto& [value, those] : ranks) {
      if (value == usual->first) continue;
      for (size_t rank : those)
        warn(rank, cat("has other ", what, ": ", value, ", most have ", usual->first));
    }
  }

  void check_products() {
    std::vector<double> flops;
    for (const Json& rank : found_["ranks"]) flops.push_back(rank["matrix_flops"]);
    const double usual = upper_median(flops);
    for (size_t rank = 0; rank < flops.size(); ++rank) {
      if (flops[rank] < kSlowProduct * usual)
        warn(rank, format("its matrix product is slow, %.0f GFLOP/s of the usual %.0f: something "
                          "else at work there, a low clock, or fewer cores?",
                          flops[rank] / 1e9, usual / 1e9));
    }
  }

  bool is_on_one_host(const Json& link) const {
    return found_["ranks"][link["ranks"][0].get<size_t>()]["host"] ==
           found_["ranks"][link["ranks"][1].get<size_t>()]["host"];
  }

  // A rank all of whose links are slow is named, else the link.
  void check_links() {
    for (bool on_one_host : {false, true}) {
      std::vector<const Json*> links;
      std::vector<double> bandwidths, latencies;
      std::map<size_t, double> most, least;  // by rank: bandwidth, latency
      for (const Json& link : found_["links"]) {
        if (is_on_one_host(link) != on_one_host) continue;
        links.push_back(&link);
        bandwidths.push_back(link["bandwidth"]);
        latencies.push_back(link["latency"]);
        for (size_t rank : link["ranks"]) {
          most[rank] = std::max(most[rank], bandwidths.back());
          auto [at, fresh] = least.try_emplace(rank, latencies.back());
          if (!fresh) at->second = std::min(at->second, latencies.back());
        }
      }
      if (links.size() < 2) continue;
      std::vector<double> bests, quickest;
      for (const auto& [rank, best] : most) bests.push_back(best);
      for (const auto& [rank, best] : least) quickest.push_back(best);
      const double usual = upper_median(bests), usual_latency = upper_median(quickest);
      std::set<size_t> named;
      for (const auto& [rank, best] : most) {
        if (best < kSlowLink * usual) {
          named.insert(rank);
          warn(rank,
               cat("its links are slow, at best ", rate(best), " of the usual ", rate(usual)));
        } else if (least[rank] > kLateLink * usual_latency && least[rank] > 1e-4) {
          named.insert(rank);
          warn(rank, format("its links are late, at best %.0f us where %.0f are usual",
                            least[rank] * 1e6, usual_latency * 1e6));
        }
      }
      for (const Json* link : links) {
        const size_t low = (*link)["ranks"][0], high = (*link)["ranks"][1];
        if (named.contains(low) || named.contains(high)) continue;
        if ((*link)["bandwidth"] < kSlowLink * usual)
          warn(low, cat("its link to ", rank_name(found_, high),
                        " is slow: ", rate((*link)["bandwidth"]), " of the usual ", rate(usual)));
      }
    }
  }

  void check(const Json& directory) {
    const std::string path = directory["path"];
    std::map<std::string, std::vector<double>> rates;
    for (size_t rank = 0; rank < directory["ranks"].size(); ++rank) {
      const Json& seen = directory["ranks"][rank];
      if (seen.contains("error")) {
        warn(rank, cat("cannot use '", path, "': ", seen["error"].get<std::string>()));
        continue;
      }
      if (!seen.value("sees_same_files", true))
        warn(rank, cat("sees other files in '", path,
                       "' than rank 0: checkpoints there are parts (--checkpoint_type local)"));
      for (const char* way : {"write", "read"}) rates[way].push_back(seen[way]);
    }
    for (const auto& [way, values] : rates) {
      const double usual = upper_median(values);
      for (size_t rank = 0; rank < directory["ranks"].size(); ++rank) {
        const Json& seen = directory["ranks"][rank];
        if (!seen.contains(way) || seen[way] >= kSlowDisk * usual) continue;
        warn(rank, cat("is slow to ", way, " in '", path, "': ", rate(seen[way]), " of the usual ",
                       rate(usual)));
      }
    }
  }

  const Json& found_;
  std::vector<std::string> texts_;
};

std::string host_lines(const Json& ranks) {
  std::string text = format("%4s  %-16s %9s  %-24s %10s %10s %8s %-8s %10s %10s  %s\n", "rank",
                            "host", "cores", "memory free", "its limit", "locked", "files", "pages",
                            "/dev/shm", "clock s", "matrix product");
  for (size_t rank = 0; rank < std::min(ranks.size(), kMostRows); ++rank) {
    const Json& r = ranks[rank];
    text += format(
        "%4zu  %-16s %9s  %-24s %10s %10s %8s %-8s %10s %+10.3f  %.0f GFLOP/s, %s\n", rank,
        r["host"].get<std::string>().c_str(),
        cat(r["usable_cores"].dump(), " of ", r["cores"].dump()).c_str(),
        cat(bytes_or_none(r["available_memory"]), " of ", bytes_or_none(r["memory"])).c_str(),
        bytes_or_none(r["memory_limit"]).c_str(), bytes_or_none(r["locked_memory_limit"]).c_str(),
        r["open_files_limit"].is_null() ? "none" : r["open_files_limit"].dump().c_str(),
        r["huge_pages"].get<std::string>().c_str(),
        r["shared_memory"].is_null() ? "none" : bytes_or_none(r["shared_memory"]["free"]).c_str(),
        r["clock_offset"].get<double>(), r["matrix_flops"].get<double>() / 1e9,
        r["isa"].get<std::string>().c_str());
  }
  if (ranks.size() > kMostRows)
    text += cat("      and ", ranks.size() - kMostRows, " ranks more, all in --json\n");
  return text;
}

std::string network_lines(const Json& ranks) {
  std::string text = "\nnetwork, accelerators\n";
  std::set<std::string> said;  // once a host
  for (size_t rank = 0; rank < std::min(ranks.size(), kMostRows); ++rank) {
    const Json& r = ranks[rank];
    std::vector<std::string> parts;
    for (const Json& i : r["interfaces"]) {
      if (!i["up"]) continue;
      parts.push_back(
          cat(i["name"].get<std::string>(), " ", i["address"].get<std::string>(),
              i["gbit"].is_null() ? "" : format(" %g Gbit/s", i["gbit"].get<double>())));
    }
    const std::string host = r["host"], interfaces = join(parts, ", ");
    if (!said.insert(cat(host, interfaces)).second) continue;
    text +=
        cat("  ", host, ": ", interfaces, "; ",
            r["gpus"] == 0
                ? "no GPU"
                : cat(r["gpus"].dump(), " GPUs, driver ", r["gpu_driver"].get<std::string>()),
            r["nccl"] == "" ? "" : cat(", NCCL ", r["nccl"].get<std::string>()),
            r["nccl_plugin"] == "" ? "" : cat(", ", r["nccl_plugin"].get<std::string>()),
            r["efa_devices"] == 0 ? "" : cat(", ", r["efa_devices"].dump(), " EFA devices"), "\n");
  }
  return text;
}

// Of hosts with a driver, once each.
std::string cuda_lines(const Json& ranks) {
  std::set<std::string> lines;
  for (const Json& r : ranks) {
    const Json cuda = r.value("cuda", Json::object());
    if (!cuda.value("has_driver", false)) continue;
    const std::string host = r["host"];
    lines.insert(cat("  ", host, ": driver ", cuda["driver"].get<std::string>(), "; kernels ",
                     cuda["kernels"].get<std::string>(), "; cublasLt ",
                     cuda["cublaslt"].get<std::string>(), "; cuDNN ",
                     cuda["cudnn"].get<std::string>(), "; NCCL ", cuda["nccl"].get<std::string>(),
                     "\n"));
    for (const Json& gpu : cuda["gpus"])
      lines.insert(cat("  ", host, ": ", gpu.get<std::string>(), "\n"));
  }
  return lines.empty() ? "" : cat("\nCUDA\n", join(lines, ""));
}

// Of those that load, once a host.
std::string plugin_lines(const Json& ranks) {
  std::set<std::string> lines;
  for (const Json& r : ranks) {
    for (const Json& plugin : r["xla_plugins"]) {
      if (plugin["error"] != "") continue;
      lines.insert(
          cat("  ", r["host"].get<std::string>(), ": ", plugin["text"].get<std::string>(), "\n"));
    }
  }
  return lines.empty() ? "" : cat("\nplug-ins of XLA\n", join(lines, ""));
}

std::string link_lines(const Json& found) {
  const size_t ranks = found["ranks"].size();
  if (found["links"].empty()) return "";
  std::string text = "\nlinks: latency of an exchange in us, bandwidth each way in GB/s\n";
  if (ranks > kMostRows) {
    std::vector<double> bandwidths, latencies;
    for (const Json& link : found["links"]) {
      bandwidths.push_back(link["bandwidth"]);
      latencies.push_back(link["latency"]);
    }
    return text +
           format("  %zu links: %.0f us and %.2f GB/s in the middle, at worst %.0f and %.2f\n",
                  bandwidths.size(), upper_median(latencies) * 1e6, upper_median(bandwidths) / 1e9,
                  *std::ranges::max_element(latencies) * 1e6,
                  *std::ranges::min_element(bandwidths) / 1e9);
  }
  std::map<std::pair<size_t, size_t>, const Json*> by_ranks;
  for (const Json& link : found["links"])
    by_ranks[{link["ranks"][0].get<size_t>(), link["ranks"][1].get<size_t>()}] = &link;
  text += "      ";
  for (size_t high = 1; high < ranks; ++high) text += format("%15zu", high);
  for (size_t low = 0; low + 1 < ranks; ++low) {
    text += format("\n  %4zu", low);
    for (size_t high = 1; high < ranks; ++high) {
      auto at = by_ranks.find({low, high});
      text += at == by_ranks.end()
                  ? format("%15s", "")
                  : format("%8.0f %6.2f", (*at->second)["latency"].get<double>() * 1e6,
                           (*at->second)["bandwidth"].get<double>() / 1e9);
    }
  }
  return text + "\n";
}

std::string directory_lines(const Json& directories) {
  std::string text;
  for (const Json& directory : directories) {
    std::vector<double> writes, reads;
    bool shared = true, known = true;
    int64_t free = 0;
    for (const Json& rank : directory["ranks"]) {
      if (rank.contains("error")) continue;
      shared &= rank.value("sees_same_files", true);
      known &= rank.contains("sees_same_files");
      writes.push_back(rank["write"]);
      reads.push_back(rank["read"]);
      free = rank["free"];
    }
    text += cat("\ndirectory ", directory["path"].get<std::string>(), "\n");
    if (writes.empty()) continue;
    text +=
        cat("  ",
            directory["ranks"].size() == 1 || !known ? ""
            : shared                                 ? "all see the same files; "
                                                     : "not all see the same files; ",
            bytes_or_none(free), " free; a rank writes ", rate(upper_median(writes)), " (at worst ",
            rate(*std::ranges::min_element(writes)), "), reads ", rate(upper_median(reads)),
            " (at worst ", rate(*std::ranges::min_element(reads)), ")\n");
  }
  return text;
}

}  // namespace

std::vector<std::string> doctor_warnings(const Json& found) { return Warnings(found).all(); }

std::string doctor_page(const Json& found, const std::vector<std::string>& warnings) {
  std::string text = cat(host_lines(found["ranks"]), network_lines(found["ranks"]),
                         cuda_lines(found["ranks"]), plugin_lines(found["ranks"]),
                         link_lines(found), directory_lines(found["directories"]), "\n");
  if (warnings.empty()) return text + "Nothing stands out.\n";
  text += cat(warnings.size(), warnings.size() == 1 ? " warning\n" : " warnings\n");
  for (const std::string& warning : warnings) text += cat("  ", warning, "\n");
  return text;
}

}  // namespace tessera
