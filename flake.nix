{
  # No inputs: everything is built from Debian's and PyPI's packages by hash (nix/sources.json), and the one program that
  # must exist before any other, a static busybox, is Debian's as well. Nothing comes from nixpkgs or from the machine.
  description = "Reproduce published GEMM articles: images, kernels and a development shell";

  outputs = { self }:
    let
      system = "x86_64-linux";
      sources = builtins.fromJSON (builtins.readFile ./nix/sources.json);
      images = [ "cuda12" "cuda13" "measure" "report" "torch" "torchcpu" ];

      # A file by hash. nix/prefetch puts it into the store; else it comes from the folder $GEMMREPRO_FILES (an address
      # such as file:///mnt/files, with --impure).
      folder =
        let named = builtins.getEnv "GEMMREPRO_FILES";
        in if named == "" then "file:///run-nix-prefetch-first" else named;
      fetch = mode: hash: file: derivation rec {
        name = builtins.replaceStrings [ "~" "%" ] [ "-" "-" ] file;
        system = "builtin";
        builder = "builtin:fetchurl";
        url = "${folder}/" + (if unpack then "${file}.nar" else builtins.replaceStrings [ "%" ] [ "%25" ] file);
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

      # The ENV lines of an image's Dockerfile, NAME=value.
      variables = env:
        let
          path = ./docker + "/${env}.Dockerfile";
          lines = builtins.filter builtins.isString (builtins.split "\n" (builtins.readFile path));
          words = line: builtins.filter (word: builtins.isString word && word != "" && word != "ENV") (builtins.split " " line);
          given = builtins.concatMap words (builtins.filter (line: builtins.match "ENV .*" line != null) lines);
        in
        if builtins.pathExists path && given != [ ] then given
        else [ "PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" ];

      roots = builtins.mapAttrs
        (env: { debs, python, apart }: build "gemmrepro-${env}-root" ./nix/root.sh {
          debs = map file debs;
          python = map file python;
          apart = map file apart;
          steps = let path = ./nix + "/steps-${env}.sh"; in if builtins.pathExists path then path else "";
          variables = variables env;
        })
        sources.environments;

      # Files of the repository whose path matches.
      part = name: expression: builtins.path {
        inherit name;
        path = ./.;
        filter = path: type:
          let below = builtins.substring (builtins.stringLength (toString ./.) + 1) (-1) path;
          in type == "directory" && baseNameOf path != "__pycache__" || builtins.match expression below != null;
      };

      # What the workflow compiles is the workflow's to say, so its Python says it.
      plan = build "gemmrepro-plan" ./nix/plan.sh {
        root = roots.report;
        code = part "gemmrepro-plan-sources" "(workflow|config|kernels|articles|reports/recorded|nix/plan[.]py).*";
      };
      planned = builtins.fromJSON (builtins.readFile plan);
      code = part "gemmrepro-build-sources" "(workflow/gemmrepro|kernels)/.*[.](py|cu|cuh|hpp|h|json|yaml|csv)";
      kernel = toolkit: id: architectures: build "${id}-${toolkit}" ./nix/kernel.sh {
        inherit toolkit architectures code;
        inherit (planned) tuned;
        kernel = id;
        root = roots.${toolkit};
      };
      kernels = builtins.mapAttrs (toolkit: builtins.mapAttrs (kernel toolkit)) planned.kernels;

      apptainer = build "apptainer" ./nix/apptainer.sh {
        inherit (roots) tools;
        debs = map file sources.environments.apptainer.debs;
        apart = map file sources.environments.apptainer.apart;
      };

      # The development shell: its programs enter the root file system that holds them.
      programs = build "gemmrepro-programs" ./nix/shell.sh {
        enter = ./nix/enter.sh;
        start = ./nix/gemmrepro.sh;
        roots = map (env: "${env}=${roots.${env}}") [ "cuda12" "cuda13" "host" "torchcpu" ];
        inherit apptainer;
      };
      bash = build "bash" ./nix/bash.sh { root = roots.host; };

      # Checks: a kernel a toolkit has the recorded build key, and tests of what needs no container.
      recorded = (builtins.fromJSON (builtins.readFile ./tests/unit/data/golden_keys.json)).kernels;
      checked = toolkit: id: build "check-${id}-${toolkit}" ./nix/check-kernel.sh {
        inherit toolkit;
        kernel = id;
        built = kernels.${toolkit}.${id};
        recorded = recorded.${id}.${toolkit};
      };

      named = suffix: make: builtins.listToAttrs (map (env: { name = "${env}-${suffix}"; value = make env; }) images);
    in
    {
      packages.${system} =
        named "root" (env: roots.${env})
        // named "oci" (env: build "${env}.oci.tar" ./nix/oci.sh {
          inherit env;
          root = roots.${env};
          inherit (roots) tools;
          pack = ./nix/pack.py;
          recipe = ./docker + "/${env}.Dockerfile";
          variables = variables env;
        })
        // named "sif" (env: build "${env}.sif" ./nix/sif.sh {
          root = roots.${env};
          inherit (roots) tools;
          pack = ./nix/pack.py;
          recipe = ./docker + "/${env}.Dockerfile";
        })
        // { inherit apptainer; host-root = roots.host; tools-root = roots.tools; };

      # kernels.<toolkit>.<id>. Their list is built, so they are where Nix does not look unless it is asked.
      legacyPackages.${system} = { inherit kernels; };

      checks.${system} = {
        cuda12 = checked "cuda12" "ladder.naive";
        cuda13 = checked "cuda13" "ladder.naive";
        unit-tests = build "check-unit-tests" ./nix/check-tests.sh {
          root = roots.host;
          code = part "gemmrepro-test-sources" "(workflow|config|kernels|articles|tests|nix|docker|envs|reports/recorded|[^/]*).*";
        };
      };

      devShells.${system}.default = derivation {
        name = "gemmrepro";
        inherit system;
        builder = "${bash}/bin/bash";
        args = [ "-c" ": > $out" ];
        outputs = [ "out" ];
        stdenv = builtins.path { path = ./nix/stdenv; name = "stdenv"; };
        shellHook = "export PATH=${programs}/bin:$PATH";
      };

      # nix fmt: Python and Snakemake files.
      formatter.${system} = build "gemmrepro-format" ./nix/format.sh {
        root = roots.host;
        enter = ./nix/enter.sh;
      };

      apps.${system}.default = { type = "app"; program = "${programs}/bin/gemmrepro"; };
    };
}
