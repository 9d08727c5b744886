# Stands in for Bundler when Bunny's specs run on Debian's own Ruby packages, which are on the load
# path already: `Bundler.require` has nothing to do.
module Bundler
  def self.require(*_groups); end
end
