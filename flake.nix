{
  # No inputs: everything is built from Debian's and PyPI's packages by hash (nix/sources.json), and the one program that
  # must exist before any other, a static busybox, is Debian's as well. Nothing comes from nixpkgs or from the machine.
  description = "Reproduce published GEMM articles: images, kernels and development shell";

  outputs = { self }:
    let
      system = "x86_64-linux";
      sources = builtins.fromJSON (builtins.readFile ./nix/sources.json);

      # A file by hash. nix/prefetch puts it into the store; else it comes from the folder $GEMMREPRO_FILES (an address
      # such as file:///mnt/files, with --impure).
      folder = let named = builtins.getEnv "GEMMREPRO_FILES"; in if named == "" then "file:///run-nix-prefetch-first" else named;
      fetch = mode: hash: file: derivation rec {
        name = builtins.replaceStrings [ "~" "%" ] [ "-" "-" ] file;
        system = "builtin";
        builder = "builtin:fetchurl";
        url = "${folder}/" + (if unpack then "busybox.nar" else builtins.replaceStrings [ "%" ] [ "%25" ] file);
        outputHashMode = mode;
        outputHashAlgo = "sha256";
        outputHash = hash;
        executable = false;
        unpack = mode == "recursive";
        preferLocalBuild = true;
      };
      file = name: fetch "flat" sources.sha256.${name} name;
      seed = fetch "recursive" sources.seed_nar "busybox";

      # A build whose steps are a shell script for busybox.
      build = name: script: attributes: derivation ({
        inherit name system seed;
        builder = "${seed}/busybox";
        args = [ "sh" "-eu" ./nix/run.sh script ];
      } // attributes);

      roots = builtins.mapAttrs
        (env: { debs, python, apart }: build "gemmrepro-${env}-root" ./nix/root.sh {
          inherit env;
          debs = map file debs;
          python = map file python;
          apart = map file apart;
          steps = let path = ./nix + "/steps-${env}.sh"; in if builtins.pathExists path then path else "";
        })
        sources.environments;
    in
    {
      packages.${system} = builtins.mapAttrs (_: root: root) roots;
    };
}
