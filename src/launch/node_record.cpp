#include "launch/node_record.h"

#include <iterator>

#include "base/parse_number.h"
#include "base/text.h"
#include "comm/job.h"

namespace tessera {

std::string NodeRecord::to_text() const {
  return cat(nnodes, "\n", workers, "\n", max_restarts, "\n", turn, "\n", serves, "\n", is_known,
             "\n", retries, "\n", host);
}

std::optional<NodeRecord> NodeRecord::from_text(std::string_view text) {
  auto lines = split(text, '\n');
  if (lines.size() != 8) return std::nullopt;
  NodeRecord record;
  int* numbers[] = {&record.nnodes, &record.workers,  &record.max_restarts, &record.turn,
                    &record.serves, &record.is_known, &record.retries};
  for (size_t i = 0; i < std::size(numbers); ++i) {
    const auto number = parse_number<int>(lines[i]);
    if (!number || *number < 0 || *number > kMaxWorldSize) return std::nullopt;
    *numbers[i] = *number;
  }
  record.host = lines[7].substr(0, 256);
  return record;
}

std::string to_text(const std::vector<NodeRecord>& nodes) {
  std::vector<std::string> texts;
  for (const NodeRecord& node : nodes) texts.push_back(node.to_text());
  return join(texts, "\t");
}

std::vector<NodeRecord> nodes_in(std::string_view text) {
  std::vector<NodeRecord> nodes;
  for (std::string_view one : split(text, '\t'))
    nodes.push_back(NodeRecord::from_text(one).value_or(NodeRecord{"?", 0}));
  return nodes;
}

}  // namespace tessera
