#include "tokenizer/piece_trie.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace tessera {

// Places nodes from the root on. Free nodes are in a list, the newest block first: what does not
// fit within a few tries gets a block of its own, whose rest is free for others.
class PieceTrieBuilder {
 public:
  using Entries = std::vector<PieceTrie::Entry>;

  PieceTrieBuilder(const Entries& entries, std::vector<PieceTrie::Node>& nodes,
                   const std::string& name)
      : entries_(entries), nodes_(nodes), name_(name) {}

  void build() {
    add_block();
    take(PieceTrie::kRoot, PieceTrie::kNobody);
    std::vector<Range> pending{{PieceTrie::kRoot, 0, entries_.size(), 0}};
    while (!pending.empty()) {
      Range range = pending.back();
      pending.pop_back();
      place_children(range, pending);
    }
  }

 private:
  // The node of the strings [begin, end), which share their first `depth` bytes.
  struct Range {
    uint32_t node;
    size_t begin, end, depth;
  };
  struct Link {
    uint32_t previous, next;
  };
  static constexpr uint32_t kNone = ~uint32_t{0};
  static constexpr int kTries = 64;

  unsigned char byte_at(size_t entry, size_t depth) const {
    return static_cast<unsigned char>(entries_[entry].text[depth]);
  }

  void place_children(Range range, std::vector<Range>& pending) {
    const PieceTrie::Entry& first = entries_[range.begin];
    if (first.text.size() == range.depth) {  // sorted: the string that ends here comes first
      nodes_[range.node].value = first.value;
      nodes_[range.node].score = first.score;
      if (++range.begin == range.end) return;
    }
    bytes_.clear();
    for (size_t i = range.begin; i < range.end; ++i) {
      if (bytes_.empty() || bytes_.back() != byte_at(i, range.depth)) {
        bytes_.push_back(byte_at(i, range.depth));
      }
    }
    uint32_t base = find_base();
    nodes_[range.node].base = base;
    for (size_t i = range.begin; i < range.end;) {
      size_t begin = i;
      unsigned char byte = byte_at(i, range.depth);
      while (i < range.end && byte_at(i, range.depth) == byte) ++i;
      take(base ^ byte, range.node);
      pending.push_back({base ^ byte, begin, i, range.depth + 1});
    }
  }

  uint32_t find_base() {
    int tries = 0;
    for (uint32_t place = head_; place != kNone && tries < kTries; place = links_[place].next) {
      uint32_t base = place ^ bytes_[0];
      ++tries;
      if (std::ranges::all_of(bytes_, [&](unsigned char byte) {
            return nodes_[base ^ byte].parent == PieceTrie::kFree;
          })) {
        return base;
      }
    }
    auto base = static_cast<uint32_t>(nodes_.size());
    add_block();
    return base;
  }

  void add_block() {
    size_t begin = nodes_.size();
    if (begin + 256 > PieceTrie::kMaxNodes) {
      throw UserError(cat("cannot use tokenizer '", name_, "': its pieces are too many and long (",
                          PieceTrie::kMaxNodes, " nodes of a trie are not enough)"));
    }
    nodes_.resize(begin + 256);
    links_.resize(begin + 256);
    for (size_t i = begin + 256; i-- > begin;) {
      auto place = static_cast<uint32_t>(i);
      links_[i] = {kNone, head_};
      if (head_ != kNone) links_[head_].previous = place;
      head_ = place;
    }
  }

  void take(uint32_t place, uint32_t parent) {
    nodes_[place].parent = parent;
    Link link = links_[place];
    if (link.previous == kNone) {
      head_ = link.next;
    } else {
      links_[link.previous].next = link.next;
    }
    if (link.next != kNone) links_[link.next].previous = link.previous;
  }

  const Entries& entries_;
  std::vector<PieceTrie::Node>& nodes_;
  const std::string& name_;
  std::vector<Link> links_;
  uint32_t head_ = kNone;
  std::vector<unsigned char> bytes_;
};

PieceTrie::PieceTrie(std::vector<Entry> entries, const std::string& name) {
  std::ranges::sort(entries, {}, &Entry::text);
  if (entries.empty()) {
    nodes_.resize(256);
    return;
  }
  PieceTrieBuilder(entries, nodes_, name).build();
}

PieceTrie::Match PieceTrie::longest(std::string_view text) const {
  Match match;
  uint32_t node = kRoot;
  for (size_t i = 0; i < text.size() && step(node, static_cast<unsigned char>(text[i])); ++i) {
    if (value(node) >= 0) match = {i + 1, value(node)};
  }
  return match;
}

}  // namespace tessera
