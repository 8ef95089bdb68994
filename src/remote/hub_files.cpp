#include "remote/hub_files.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/interruption.h"
#include "base/text.h"
#include "remote/hub_listing.h"
#include "remote/url.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

constexpr int kMaxPages = 5000;
constexpr std::string_view kConverted = "refs/convert/parquet";

// A repository at one commit.
struct Snapshot {
  std::string commit;
  std::vector<RemoteEntry> entries;
};

class Repository {
 public:
  Repository(const HubReference& reference, const RemoteOptions& options)
      : reference_(reference), options_(options) {}

  std::vector<RemoteEntry> list() const {
    std::optional<Snapshot> snapshot = this->snapshot(revision(), true);
    if (!reference_.is_dataset) {
      std::ranges::sort(snapshot->entries, {}, &RemoteEntry::path);
      return std::move(snapshot->entries);
    }
    std::vector<RemoteEntry> chosen = choose(*snapshot);
    if (chosen.empty() && reference_.revision.empty()) {
      if (auto converted = this->snapshot(std::string(kConverted), false))
        chosen = choose(*converted);
    }
    if (chosen.empty()) {
      throw UserError(
          cat("'", reference_.given,
              "' has no data that can be read: no Parquet, Arrow, "
              "JSON or text file in its repository, and none that the hub has converted; "
              "fetch the data in another way and give the path of a local directory"));
    }
    return chosen;
  }

 private:
  const HubSettings& hub() const { return options_.hub; }
  std::string revision() const {
    return reference_.revision.empty() ? "main" : reference_.revision;
  }

  // nullopt where there is no such revision and none is `required`.
  std::optional<Snapshot> snapshot(const std::string& revision, bool required) const {
    if (hub().offline) return local_snapshot(revision, required);
    Snapshot snapshot;
    std::string kind = reference_.is_dataset ? "/api/datasets/" : "/api/models/";
    std::string api = cat(hub().endpoint, kind, reference_.repository);
    HttpRequest request = this->request(cat(api, "/revision/", percent_encode(revision, false)));
    HttpResponse response = send_request(request, options_.http);
    if (response.status == 404 && !required) return {};
    if (response.status != 200) refuse_response(request, response, hub_advice(hub()));
    snapshot.commit = parse_hub_revision(response.body, public_url(request.url));
    for (const HubFile& file : tree(cat(api, "/tree/", snapshot.commit)))
      snapshot.entries.push_back(entry(file, snapshot.commit));
    return snapshot;
  }

  std::vector<HubFile> tree(const std::string& url) const {
    std::vector<HubFile> files;
    HttpRequest request = this->request(cat(url, "?recursive=true&expand=false"));
    for (int page = 0;; ++page) {
      check_interruption();
      if (page == kMaxPages)
        throw UserError(cat("'", public_url(url), "' does not end after ", kMaxPages,
                            " pages; check that HF_ENDPOINT is a hub"));
      HttpResponse response = send_request(request, options_.http);
      if (response.status != 200) refuse_response(request, response, hub_advice(hub()));
      parse_hub_tree(response.body, public_url(url), files);
      const std::string* link = find_header(response.headers, "link");
      auto next = link ? parse_next_link(*link) : std::nullopt;
      if (!next) return files;
      auto target = resolve_reference(parse_url(response.url), *next);
      // The token goes with every page.
      if (!target || !same_origin(*target, parse_url(hub().endpoint)))
        throw UserError(cat("'", public_url(url),
                            "' goes on at another server; check that "
                            "HF_ENDPOINT is a hub"));
      request.url = target->text;
    }
  }

  HttpRequest request(std::string url) const {
    HttpRequest request;
    request.url = std::move(url);
    if (!hub().token.empty()) request.authorization = cat("Bearer ", hub().token);
    request.advice = "HF_HUB_OFFLINE=1 takes what the tools of the hub have fetched before";
    return request;
  }

  RemoteEntry entry(const HubFile& file, const std::string& commit) const {
    RemoteEntry entry{file.path, "", file.size, "", file.sha256, file.git_sha1, commit};
    fs::path fetched = local_directory() / "snapshots" / commit / file.path;
    std::error_code error;
    if (fs::is_regular_file(fetched, error) && fs::file_size(fetched, error) == file.size) {
      entry.url = fetched.string();
    } else {
      entry.url =
          cat(hub().endpoint, reference_.is_dataset ? "/datasets/" : "/", reference_.repository,
              "/resolve/", commit, "/", percent_encode(file.path, true));
    }
    return entry;
  }

  fs::path local_directory() const {
    std::string name(reference_.is_dataset ? "datasets" : "models");
    for (std::string_view part : split(reference_.repository, '/')) name += cat("--", part);
    return hub().home / "hub" / name;
  }

  std::optional<Snapshot> local_snapshot(const std::string& revision, bool required) const {
    std::error_code error;
    Snapshot snapshot;
    snapshot.commit = revision;
    fs::path reference = local_directory() / "refs" / revision;
    if (fs::is_regular_file(reference, error) && fs::file_size(reference, error) < 256)
      snapshot.commit = trim(read_file(reference));
    fs::path folder = local_directory() / "snapshots" / snapshot.commit;
    if (!is_plain_name(snapshot.commit) || !fs::is_directory(folder, error)) {
      if (!required) return {};
      throw UserError(cat("'", reference_.given, "' at '", revision, "' is not in '",
                          hub().home.string(),
                          "', and HF_HUB_OFFLINE lets nothing be fetched; "
                          "unset it, or fetch it with `hf download`"));
    }
    for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
         it.increment(error)) {
      std::error_code broken;
      if (!it->is_regular_file(broken)) continue;
      RemoteEntry entry;
      entry.path = it->path().lexically_relative(folder).generic_string();
      entry.url = it->path().string();
      entry.size = it->file_size(broken);
      entry.revision = snapshot.commit;
      snapshot.entries.push_back(std::move(entry));
    }
    return snapshot;
  }

  std::vector<RemoteEntry> choose(const Snapshot& snapshot) const {
    std::vector<HubFile> files;
    for (const RemoteEntry& entry : snapshot.entries)
      files.push_back({entry.path, entry.size, "", ""});
    std::set<std::string> paths;
    for (HubFile& file : choose_data_files(std::move(files), reference_.config, reference_.given))
      paths.insert(std::move(file.path));
    std::vector<RemoteEntry> chosen;
    for (const RemoteEntry& entry : snapshot.entries) {
      if (paths.contains(entry.path)) chosen.push_back(entry);
    }
    std::ranges::sort(chosen, {}, &RemoteEntry::path);
    return chosen;
  }

  const HubReference& reference_;
  const RemoteOptions& options_;
};

}  // namespace

std::vector<RemoteEntry> list_hub_files(const HubReference& reference,
                                        const RemoteOptions& options) {
  return Repository(reference, options).list();
}

std::string hub_advice(const HubSettings& hub) {
  return hub.token.empty()
             ? "check the name; of what is private or gated only who has access may read: set "
               "HF_TOKEN to a token of the hub (hf auth login does)"
             : "check the name, that the token in HF_TOKEN is valid and may read it, and that the "
               "terms of what is gated have been accepted on its page";
}

}  // namespace tessera
