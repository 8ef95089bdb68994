#include "ordering.h"

#include <algorithm>

#include "findings.h"

namespace tessera::emulated_gpu {
namespace {

bool before(const Toucher& t, const Toucher& now, const Clock& clock) {
  if (t.stream < 0 || t.stream == now.stream) return true;
  const auto stream = static_cast<size_t>(t.stream);
  return stream < clock.size() && clock[stream] >= t.at;
}

// A piece begins at `where`, if one reaches over it.
void split(std::map<int64_t, Memory::Piece>& pieces, int64_t where) {
  auto piece = pieces.upper_bound(where);
  if (piece == pieces.begin()) return;
  --piece;
  if (piece->first == where || piece->second.end <= where) return;
  Memory::Piece right = piece->second;
  piece->second.end = where;
  pieces[where] = std::move(right);
}

}  // namespace

void join(Clock& clock, const Clock& other) {
  if (clock.size() < other.size()) clock.resize(other.size());
  for (size_t n = 0; n < other.size(); ++n) clock[n] = std::max(clock[n], other[n]);
}

int Ordering::label(const std::string& text) {
  const auto [it, fresh] = label_numbers_.emplace(text, static_cast<int>(labels_.size()));
  if (fresh) labels_.push_back(text);
  return it->second;
}

std::string Ordering::who(const Toucher& t) const {
  const auto name = streams_.find(t.stream);
  return text(t.label) + " on " + (name == streams_.end() ? "a stream" : name->second);
}

void Ordering::touch(Memory& memory, const Toucher& now, const Clock& clock, const Range& range) {
  auto& pieces = memory.pieces;
  const int64_t from = range.begin - memory.begin, to = from + range.bytes;
  split(pieces, from);
  split(pieces, to);
  const auto conflict = [&](const Toucher& other, const char* does, const char* did) {
    found("order: " + who(now) + does + who(other) + did + ", and nothing puts them in order",
          memory.name + ", byte " + std::to_string(from));
  };
  int64_t next = from;
  for (auto it = pieces.lower_bound(from); next < to; ++it) {
    if (it == pieces.end() || it->first > next) {  // nobody has touched it
      const int64_t end = it == pieces.end() ? to : std::min(to, it->first);
      it = pieces.emplace(next, Memory::Piece{end, {}, {}}).first;
    }
    Memory::Piece& piece = it->second;
    if (!before(piece.writer, now, clock)) {
      conflict(piece.writer, range.writes ? " writes what " : " reads what ", " writes");
    }
    if (range.writes) {
      for (const Toucher& reader : piece.readers) {
        if (!before(reader, now, clock)) conflict(reader, " writes what ", " reads");
      }
      piece.readers.clear();
      piece.writer = now;
    } else {
      std::erase_if(piece.readers, [&](const Toucher& t) { return before(t, now, clock); });
      piece.readers.push_back(now);
    }
    next = piece.end;
  }
  if (range.writes) {  // one piece again
    const auto whole = pieces.find(from);
    whole->second.end = to;
    pieces.erase(std::next(whole), pieces.lower_bound(to));
  }
}

const Toucher* Ordering::unordered(const Memory& memory, const Clock& clock) const {
  const Toucher host{0, 0, -1, 0};
  for (const auto& [begin, piece] : memory.pieces) {
    if (!before(piece.writer, host, clock)) return &piece.writer;
    for (const Toucher& reader : piece.readers) {
      if (!before(reader, host, clock)) return &reader;
    }
  }
  return nullptr;
}

}  // namespace tessera::emulated_gpu
