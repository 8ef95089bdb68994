#include "launch/membership_state.h"

#include <nlohmann/json.hpp>

#include "comm/job.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;
constexpr size_t kMaxText = 1 << 20, kMaxName = 256;
constexpr const char* kPhases[] = {"forming", "running", "closed"};

// What does not belong there, whatever of it.
struct BadState {};

int number(const Json& json, const char* key, int lowest, int highest) {
  const Json& value = json.at(key);
  if (!value.is_number_integer()) throw BadState{};
  int64_t result = value.is_number_unsigned() && value.get<uint64_t>() > INT32_MAX
                       ? int64_t{1} << 40
                       : value.get<int64_t>();
  if (result < lowest || result > highest) throw BadState{};
  return static_cast<int>(result);
}

std::string text(const Json& json, const char* key, size_t longest = kMaxName) {
  std::string result = json.at(key).get<std::string>();
  if (result.size() > longest) throw BadState{};
  for (char c : result) {
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n') throw BadState{};
  }
  return result;
}

Json to_json(const std::vector<MemberNode>& nodes) {
  Json list = Json::array();
  for (const MemberNode& node : nodes) {
    Json one{{"id", node.id}, {"host", node.host}};
    if (node.wanted_rank) one["rank"] = *node.wanted_rank;
    list.push_back(std::move(one));
  }
  return list;
}

std::vector<MemberNode> nodes_in(const Json& json, const char* key) {
  const Json& list = json.at(key);
  if (!list.is_array() || list.size() > static_cast<size_t>(kMaxWorldSize)) throw BadState{};
  std::vector<MemberNode> nodes;
  for (const Json& one : list) {
    MemberNode node{text(one, "id"), text(one, "host"), std::nullopt};
    if (one.contains("rank")) node.wanted_rank = number(one, "rank", 0, kMaxWorldSize);
    nodes.push_back(std::move(node));
  }
  return nodes;
}

MembershipState parse(const Json& json) {
  MembershipState state;
  if (number(json, "tessera_membership", kFormat, kFormat) != kFormat) throw BadState{};
  state.job_id = text(json, "job");
  state.min_nodes = number(json, "min_nodes", 1, kMaxWorldSize);
  state.max_nodes = number(json, "max_nodes", state.min_nodes, kMaxWorldSize);
  state.max_restarts = number(json, "max_restarts", 0, INT32_MAX);
  state.round = number(json, "round", 0, INT32_MAX - 1);
  state.restarts = number(json, "restarts", 0, INT32_MAX - 1);
  const std::string phase = text(json, "phase");
  int index = 0;
  while (index < 3 && phase != kPhases[index]) ++index;
  if (index == 3) throw BadState{};
  state.phase = static_cast<MembershipState::Phase>(index);
  state.members = nodes_in(json, "members");
  state.waiting = nodes_in(json, "waiting");
  for (const Json& id : json.at("expected")) state.expected.push_back(id.get<std::string>());
  state.quick = json.at("quick").get<bool>();
  state.store = {text(json, "store_host"), number(json, "store_port", 0, 65535)};
  auto end = JobEnd::from_text(text(json, "end", kMaxText));
  if (!end) throw BadState{};
  state.end = *end;
  return state;
}

}  // namespace

std::string MembershipState::to_text() const {
  Json json{{"tessera_membership", kFormat}, {"job", job_id},
            {"min_nodes", min_nodes},        {"max_nodes", max_nodes},
            {"max_restarts", max_restarts},  {"round", round},
            {"restarts", restarts},          {"phase", kPhases[static_cast<int>(phase)]},
            {"members", to_json(members)},   {"waiting", to_json(waiting)},
            {"expected", expected},          {"quick", quick},
            {"store_host", store.host},      {"store_port", store.port},
            {"end", end.to_text()}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<MembershipState> MembershipState::from_text(std::string_view text) {
  if (text.size() > kMaxText) return std::nullopt;
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  try {
    return parse(json);
  } catch (const nlohmann::json::exception&) {
  } catch (const BadState&) {
  }
  return std::nullopt;
}

}  // namespace tessera
